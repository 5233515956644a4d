// SPDX-License-Identifier: Apache-2.0
// Costs of Sailor's model over ranges of layers. Seconds of one micro-batch.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <vector>

#include "tests/bench/sailor/sailor.h"

namespace weir::planner {

struct SailorOption {  // how a stage may run
  int device = 0, degree = 1;
};

// Degree within a server, with sizes and a curve between servers.
bool sailor_known(const SailorProblem& problem, const SailorOption& option);
// Of each replica and step: ceil(G / (mb D)).
int sailor_micro_batches(const SailorProblem& problem, int micro_batch, int replicas);

// Refers to the problem. Options must be known, with times of that micro-batch size.
class SailorCosts {
 public:
  explicit SailorCosts(const SailorProblem& problem);

  int layers() const { return layers_; }
  double stage(const SailorOption& option, int micro_batch, int first, int end) const;
  // 24 bytes per parameter and 2e9 (3e9 with tensor parallelism); and the activations, which count
  // once for every stage from this one to the end.
  double static_bytes(const SailorOption& option, int first, int end) const;
  double activation_bytes(const SailorOption& option, int micro_batch, int first, int end) const;
  // One direction, over the boundary before a layer.
  double transfer(const SailorOption& from, const SailorOption& to, int layer,
                  int micro_batch) const;
  // AllReduce of the gradients in buckets of 500 MB.
  double sync(const SailorOption& option, int first, int end, int replicas) const;
  // Layers before `end`, each on its fastest option; and all layers on one option, each at least
  // the fastest time times the smallest ratio of the two.
  double fastest(const std::vector<SailorOption>& options, int micro_batch, int end) const;
  double least_whole(const std::vector<SailorOption>& options, std::size_t option,
                     int micro_batch) const;
  // Of a step; the plan must be known and fit.
  double seconds(const SailorPlan& plan) const;

 private:
  const std::vector<std::array<double, 3>>& times(const SailorOption& option,
                                                  int micro_batch) const;
  double layer_seconds(const SailorOption& option, int micro_batch, int layer) const;
  double send(const SailorOption& option, double bytes) const;

  const SailorProblem& problem_;
  int layers_ = 0;
  std::vector<std::map<int, LinkRate>> links_;  // between servers, by device and degree
};

}  // namespace weir::planner
