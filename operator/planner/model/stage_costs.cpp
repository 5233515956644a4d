// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/model/stage_costs.h"

#include <algorithm>
#include <span>

namespace weir::planner {
namespace {

const Device* device_of(const Cluster& cluster, const schedule::Plan& plan, int stage) {
  const auto rank = std::ranges::find_if(plan.ranks, [&](const schedule::RankPlace& place) {
    return place.replica == 0 && place.stage == stage;
  });
  if (rank == plan.ranks.end()) return nullptr;
  const auto device = std::ranges::find_if(cluster.devices, [&](const Device& candidate) {
    return candidate.pod == rank->pod && candidate.local == rank->local;
  });
  return device == cluster.devices.end() ? nullptr : &*device;
}

// Bytes across the boundary before layer `end`, each output once; a chain has no edges.
std::int64_t cut_bytes(const Model& model, int end, int micro_batch_size) {
  std::vector<bool> crosses(static_cast<std::size_t>(end), false);
  const bool chain = model.edges.empty() && !model.edges_given;
  if (chain) crosses.back() = end < static_cast<int>(model.layers.size());
  for (const auto& [from, to] : model.edges) {
    if (from < end && to >= end) crosses[static_cast<std::size_t>(from)] = true;
  }
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < crosses.size(); ++i) {
    if (crosses[i]) bytes += model.layers[i].output_bytes_per_sample * micro_batch_size;
  }
  return bytes;
}

}  // namespace

PipelineCosts costs_of(const Model& model, const Cluster& cluster, const schedule::Plan& plan) {
  PipelineCosts costs;
  if (model.layers.empty()) return costs;
  const int size = plan.schedule.micro_batch_size, layers = static_cast<int>(model.layers.size());
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const Device* device = device_of(cluster, plan, static_cast<int>(s));
    const std::string device_class = device == nullptr ? "" : device->device_class;
    // A profile that came later may have fewer layers than the plan knows.
    const int first = std::clamp(plan.stages[s].first, 0, layers - 1);
    const int end = std::clamp(plan.stages[s].last + 1, first + 1, layers);
    schedule::StageTime time;
    std::int64_t parameters = 0, frozen = 0, stash = 0, transient = 0, split_transient = 0;
    schedule::StageMemory split;
    for (const Layer& layer :
         std::span(model.layers)
             .subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(end - first))) {
      const LayerTime layer_seconds = layer_time(model, layer, device_class, size);
      time.forward += layer_seconds.forward;
      time.backward += layer_seconds.backward;
      time.backward_input += layer_seconds.backward_input;
      time.backward_weights += layer_seconds.backward_weights;
      parameters += layer.parameter_bytes;
      frozen += layer.frozen_bytes;
      stash += layer.stash_bytes_per_sample * size + layer.stash_bytes;
      transient =
          std::max(transient, layer.transient_bytes_per_sample * size + layer.transient_bytes);
      const std::int64_t held = layer.held_bytes_per_sample * size;
      split.held_bytes += held;
      split.in_backward_bytes +=
          std::max(held, layer.stash_bytes_per_sample * size + layer.stash_bytes);
      split_transient = std::max(
          split_transient, layer.split_transient_bytes_per_sample * size + layer.transient_bytes);
    }
    const std::int64_t state = state_bytes(model.state_factor, parameters, frozen);
    split.activation_bytes = stash;
    split.static_bytes = state + split_transient;
    costs.stages.push_back(time);
    costs.static_bytes.push_back(state + transient);
    costs.stash_bytes.push_back(stash);
    costs.split.push_back(split);
    if (s + 1 < plan.stages.size()) costs.boundary_bytes.push_back(cut_bytes(model, end, size));
    if (s > 0) costs.split[s].input_bytes = costs.boundary_bytes[s - 1];
    if (s + 1 < plan.stages.size()) costs.split[s].output_bytes = costs.boundary_bytes[s];
    costs.memory_limit.push_back(device == nullptr ? 0 : device->memory_bytes);
  }
  return costs;
}

std::int64_t wire_bytes(const Model& model, const schedule::Plan& plan, int boundary, bool forward,
                        std::int64_t raw_bytes) {
  const auto codec =
      schedule::codec_of(forward ? plan.codecs.forward : plan.codecs.backward, boundary);
  return schedule::wire_bytes(codec, raw_bytes, plan.schedule.micro_batch_size, model.number_bytes);
}

}  // namespace weir::planner
