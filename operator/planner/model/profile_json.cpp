// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/model/profile_json.h"

#include "worker/base/units.h"
#include "worker/protocol/profile.h"

namespace weir::planner {
namespace {

constexpr std::size_t kMostProfileBytes = 16U << 20;  // a ConfigMap holds 1 MiB, a register body 2

Layer layer_of(protocol::ProfileLayer& read, double state_factor) {
  Layer layer{.id = std::move(read.id),
              .description = std::move(read.description),
              .parameter_bytes = read.parameter_bytes,
              .output_bytes_per_sample = read.output_bytes_per_sample,
              .stash_bytes_per_sample = read.activation_bytes_per_sample,
              .stash_bytes = read.activation_bytes,
              .transient_bytes_per_sample = read.transient_bytes_per_sample,
              .transient_bytes = read.transient_bytes,
              // Unknown: as much as a whole backward.
              .held_bytes_per_sample = read.activation_bytes_per_sample,
              .split_transient_bytes_per_sample = read.transient_bytes_per_sample,
              .times = {}};
  if (read.static_bytes) {
    layer.frozen_bytes = *read.static_bytes - state_bytes(state_factor, read.parameter_bytes, 0);
  }
  if (read.split) {
    layer.held_bytes_per_sample = read.split->held_per_sample;
    layer.split_transient_bytes_per_sample = read.split->transient_per_sample;
  }
  for (const auto& [device_class, times] : read.times) {
    for (const protocol::ProfileTime& time : times) {
      const protocol::SplitTime split = time.split.value_or(protocol::SplitTime{});
      layer.times[device_class].push_back({.samples = time.samples,
                                           .forward = from_seconds(time.forward),
                                           .backward = from_seconds(time.backward),
                                           .update = from_seconds(time.update),
                                           .backward_input = from_seconds(split.input),
                                           .backward_weights = from_seconds(split.weights)});
    }
  }
  return layer;
}

}  // namespace

Result<Model> decode_profile(std::string_view text) {
  if (text.size() > kMostProfileBytes) return invalid("profile: longer than 16 MiB");
  WEIR_TRY(protocol::Profile profile, protocol::decode_profile(text));
  Model model{.name = profile.model,
              .digest = profile.digest,
              .state_factor = profile.state_factor,
              .scaling = profile.scaling,
              .layers = {},
              .edges = std::move(profile.edges),
              .number_bytes = profile.number_bytes};
  for (protocol::ProfileLayer& layer : profile.layers) {
    model.layers.push_back(layer_of(layer, profile.state_factor));
  }
  for (const protocol::ProfileTie& tie : profile.ties) model.tied_bytes += tie.bytes;
  return model;
}

}  // namespace weir::planner
