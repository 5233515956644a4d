// SPDX-License-Identifier: Apache-2.0
// A model at one micro-batch size as a normalised graph: nodes in topological order, integer
// nanoseconds and bytes, whose sums have no order. Bit i of every set of nodes is node i here.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "operator/planner/model/model.h"
#include "worker/base/result.h"

namespace weir::planner {

struct DagClass {
  std::string name;
  // Multiplies the times of the profile's first class where the profile has none for `name`.
  double speed_factor = 1;
  // Times of micro_batch_size / split samples: a stage of `split` ranks. 1 for all whose scaling is
  // proportional; those divide by the ranks themselves.
  int split = 1;
};

struct DagTimes {  // nanoseconds of one micro-batch, by node
  std::vector<std::int64_t> forward, backward, update;
  std::vector<std::int64_t> backward_input, backward_weights;  // of a split backward
};

struct Dag {
  int nodes = 0;
  int micro_batch_size = 1;
  double state_factor = schedule::kStateFactor;
  std::vector<int> layer;         // node -> index in Model::layers
  std::vector<DagTimes> classes;  // by index of the DagClass asked for
  std::vector<std::int64_t> parameters, frozen, output, stash, transient;  // bytes, by node
  // A split backward keeps these from B to W, keeps these in B, and needs these in either.
  std::vector<std::int64_t> held, in_backward, split_transient;
  // Sorted, each neighbour once. A predecessor has a smaller index than its successor.
  std::vector<std::vector<int>> predecessors, successors;

  bool chain() const;  // every ideal is a prefix
};

// Kahn's order, the smallest free layer index first: a model whose layers are in topological order
// keeps its order. An empty list of edges is a chain. kInvalid: a cycle, an edge to nowhere, sums
// that overflow 2^62.
Result<Dag> dag_of(const Model& model, const std::vector<DagClass>& classes, int micro_batch_size);

// A graph from its parts, for tests and generated instances: sorts and de-duplicates neighbours.
// Edges must run from smaller to larger indices; missing vectors are filled with zeros.
Dag dag_from(Dag parts, const std::vector<std::pair<int, int>>& edges);

}  // namespace weir::planner
