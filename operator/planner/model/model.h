// SPDX-License-Identifier: Apache-2.0
// A model as the planner knows it: layers with times and sizes per device class. Plain data
// (operator/planner/model/README.md "profile.json").
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "operator/planner/model/cluster.h"
#include "worker/protocol/profile.h"
#include "worker/schedule/validate.h"

namespace weir::planner {

struct LayerTime {
  int samples = 1;  // of one micro-batch
  std::chrono::nanoseconds forward{0}, backward{0}, update{0};
  // The parts of a split backward. Both 0: the layer does not split, its first part is `backward`.
  std::chrono::nanoseconds backward_input{0}, backward_weights{0};
};

using protocol::Scaling;

struct Layer {
  std::string id, description;
  std::int64_t parameter_bytes = 0;  // trained: what replicas sum
  // Bytes held besides state_factor x parameter_bytes, for parameters that are frozen.
  std::int64_t frozen_bytes = 0;
  std::int64_t output_bytes_per_sample = 0;
  std::int64_t stash_bytes_per_sample = 0, stash_bytes = 0;  // of a sample, of a micro-batch
  std::int64_t transient_bytes_per_sample = 0, transient_bytes = 0;
  // Split backward: kept from B to W, and transient in either.
  std::int64_t held_bytes_per_sample = 0, split_transient_bytes_per_sample = 0;
  std::map<std::string, std::vector<LayerTime>> times;  // by device class, rising samples
};

struct Model {
  std::string name, digest;
  double state_factor = schedule::kStateFactor;  // bytes held per parameter byte
  Scaling scaling = Scaling::kInterpolate;
  std::vector<Layer> layers;
  std::vector<std::pair<int, int>> edges;  // empty: a chain in the order of layers ...
  bool edges_given = false;                // ... unless all edges are here
  // Tables that the first and the last layer share: on two stages these send each other the sums of
  // their gradients after each step, in double.
  std::int64_t tied_bytes = 0;  // in float32
  int number_bytes = 4;         // of tensors between layers; 0 = codecs cannot be used
};

// Bytes that a stage holds for the parameters of its layers.
std::int64_t state_bytes(double state_factor, std::int64_t parameter_bytes,
                         std::int64_t frozen_bytes);

// Times of `samples` samples through one layer on one device class: by Scaling; a class without
// times uses the first class. The parts of a split backward are always there.
LayerTime layer_time(const Model& model, const Layer& layer, const std::string& device_class,
                     int samples);

}  // namespace weir::planner
