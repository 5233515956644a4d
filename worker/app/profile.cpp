// SPDX-License-Identifier: Apache-2.0
#include "worker/app/profile.h"

#include <optional>
#include <utility>

#include "worker/base/log.h"
#include "worker/base/units.h"
#include "worker/protocol/profile.h"

namespace weir::app {
namespace {

using Timings = std::vector<std::vector<stage::LayerTiming>>;  // per layer, per sample count

Timings emulated_times(const stage::Model& model, const emulate::ProfileTimes& emulation,
                       const std::vector<int>& samples) {
  Timings times(model.layers.size());
  for (std::size_t layer = 0; layer < times.size(); ++layer) {
    for (const int count : samples) {
      times[layer].push_back(emulation.layer(static_cast<int>(layer), count));
    }
  }
  return times;
}

// Unset where the profile's stateFactor tells them.
std::optional<std::int64_t> static_bytes(const ProfileOf& of, const stage::LayerInfo& layer) {
  if (layer.frozen_bytes == 0) return std::nullopt;
  return stage::state_bytes(of.model.options.precision, layer.parameter_bytes, layer.frozen_bytes) +
         (of.saves ? stage::save_copy_bytes(layer) : 0);
}

std::string profile_json(const ProfileOf& of, const Timings& times) {
  const stage::Model& model = of.model;
  protocol::Profile profile{.model = model.options.name,
                            .digest = model.digest,
                            .state_factor = stage::state_factor(model.options.precision) +
                                            (of.saves ? stage::kSaveCopyFactor : 0)};
  // Layers of one's own may hand on several tensors as one message.
  profile.number_bytes =
      model.source ? 0 : static_cast<int>(stage::element_bytes(model.options.precision));
  for (const stage::Tie& tie : model.ties) {
    profile.ties.push_back(
        {.first = model.layers.front().id, .last = model.layers.back().id, .bytes = tie.bytes});
  }
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const stage::LayerInfo& info = model.layers[i];
    protocol::ProfileLayer layer{
        .id = info.id,
        .description = info.description,
        .parameter_bytes = info.parameter_bytes,
        .static_bytes = static_bytes(of, info),
        .output_bytes_per_sample = info.output_bytes_per_sample,
        .activation_bytes_per_sample = info.activation_bytes_per_sample,
        .activation_bytes = info.activation_bytes,
        .transient_bytes_per_sample = info.transient_bytes_per_sample,
        .transient_bytes = info.transient_bytes,
        .split =
            protocol::SplitBytes{.held_per_sample = info.held_bytes_per_sample,
                                 .transient_per_sample = info.split_transient_bytes_per_sample}};
    for (const stage::LayerTiming& timing : times[i]) {
      layer.times[of.device.name()].push_back(
          {.samples = timing.samples,
           .forward = to_seconds(timing.forward),
           .backward = to_seconds(timing.backward),
           .update = to_seconds(timing.update),
           .split = protocol::SplitTime{.input = to_seconds(timing.backward_input),
                                        .weights = to_seconds(timing.backward_weights)}});
    }
    profile.layers.push_back(std::move(layer));
  }
  return protocol::encode_profile(profile);
}

}  // namespace

protocol::Measured measure_profile(const ProfileOf& of, const protocol::Measure& request,
                                   std::stop_token stop) {
  const stage::Model& model = of.model;
  if (of.emulation != nullptr) {
    return {.profile_json =
                profile_json(of, emulated_times(model, *of.emulation, request.samples))};
  }
  const Result<Timings> times =
      stage::measure(model, of.device, request.samples, request.rounds, std::move(stop));
  if (!times) return {.error = times.error().message};
  log_info("app", "layers measured", {{"layers", model.layers.size()}});
  return {.profile_json = profile_json(of, *times)};
}

}  // namespace weir::app
