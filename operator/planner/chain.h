// SPDX-License-Identifier: Apache-2.0
// A model at one micro-batch size as sums over ranges of layers, so that any stage costs O(1).
// Inside the room only. Units: seconds and bytes of one micro-batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operator/planner/model/model.h"
#include "worker/schedule/caps.h"

namespace weir::planner {

// Index of a device class in Chain::classes.
using ClassIndex = std::size_t;

struct ClassSums {  // prefix sums: element i covers layers 0..i-1
  std::vector<std::int64_t> forward, backward, update;  // nanoseconds
};

struct Chain {
  int layers = 0;
  int micro_batch_size = 1;
  double state_factor = 4;
  std::vector<ClassSums> classes;
  std::vector<std::int64_t> parameters, stash;  // prefix sums, bytes
  std::vector<std::int64_t> transient;          // per layer, bytes
  // cut[i]: bytes that cross the boundary before layer i, once per node with a consumer behind it;
  // cut[0] = cut[layers] = 0.
  std::vector<std::int64_t> cut;
};

// Layers in the order of the model; edges must run forward (edge_that_runs_back is empty).
Chain chain_of(const Model& model, const std::vector<std::string>& classes, int micro_batch_size);
// "b -> a" of the first edge that contradicts the order of layers, or nothing.
std::string edge_that_runs_back(const Model& model);

// Layers [first, end) on one class.
schedule::StageTime stage_time(const Chain& chain, ClassIndex device_class, int first, int end);
std::int64_t static_bytes(const Chain& chain, int first, int end);  // state + largest transient
std::int64_t stash_bytes(const Chain& chain, int first, int end);

}  // namespace weir::planner
