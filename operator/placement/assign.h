// SPDX-License-Identifier: Apache-2.0
// Puts the ranks of all replicas onto devices, over the links that were measured.
// Every choice is tried where symmetry leaves few enough; else DAPPLE's three constructions
// and exchanges of two. Pure and deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "operator/placement/score.h"
#include "operator/placement/topology.h"

namespace weir::placement {

struct Task {
  std::vector<int> kind_of;       // by device: a stage takes devices of one kind
  std::vector<int> kinds, ranks;  // by stage: of which kind, how many in one replica
  int replicas = 1;
  int most_tried = 20'000;  // assignments scored
};

struct Assigned {
  Assignment assignment;
  double seconds = 0;
  bool exact = false;  // no assignment is faster
  int tried = 0;
};

using Score = std::function<double(const Assignment&)>;  // seconds of a step; smaller is better
// Bytes that ranks would have to fetch, for the choice among assignments within 0.5 % of the best.
using MovedBytes = std::function<std::int64_t(const Assignment&)>;

// Nothing if a kind has too few devices. `start`: tried as well, for example the present one.
std::optional<Assigned> assign(const Topology& topology, const Task& task, const Score& score,
                               const MovedBytes& moved = {},
                               const std::optional<Assignment>& start = {});

// DAPPLE's policies: a stage on unused servers, on servers already in use, spread out.
enum class Policy : unsigned char { kFreshFirst, kAppendFirst, kScatterFirst };
// by_stage: all replicas of a stage after each other (short AllReduce), else replica by replica
// (short pipelines). Nothing if a kind has too few devices.
std::optional<Assignment> constructed(const Topology& topology, const Task& task, Policy policy,
                                      bool by_stage);

}  // namespace weir::placement
