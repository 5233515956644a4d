// SPDX-License-Identifier: Apache-2.0
// Assigns the ranks of all replicas to devices with regard to the measured links. If symmetry
// leaves few enough assignments, all are tried; otherwise DAPPLE's three constructions, improved by
// exchanges of two devices. Pure and deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "operator/placement/score.h"
#include "operator/placement/topology.h"

namespace weir::placement {

struct Task {
  std::vector<int> kind_of;       // kind of each device; a stage takes devices of one kind
  std::vector<int> kinds, ranks;  // by stage: kind of its devices, number of them in one replica
  int replicas = 1;
  int most_tried = 20'000;  // limit of assignments that are scored
};

struct Assigned {
  Assignment assignment;
  double seconds = 0;
  bool exact = false;  // no assignment is faster
  int tried = 0;
};

using Score = std::function<double(const Assignment&)>;  // seconds of a step; smaller is better
// Bytes that ranks would have to fetch. Among assignments within 0.5 % of the best time, the one
// with the fewest bytes wins.
using MovedBytes = std::function<std::int64_t(const Assignment&)>;

// Nothing if a kind has too few devices. start: an assignment that is tried too, such as the
// present one.
std::optional<Assigned> assign(const Topology& topology, const Task& task, const Score& score,
                               const MovedBytes& moved = {},
                               const std::optional<Assignment>& start = {});

// DAPPLE's policies: put a stage on unused servers, on servers already in use, or spread it over
// many servers.
enum class Policy : unsigned char { kFreshFirst, kAppendFirst, kScatterFirst };
// by_stage: places all replicas of a stage next to each other (short AllReduce); else all stages of
// a replica (short pipelines). Nothing if a kind has too few devices.
std::optional<Assignment> constructed(const Topology& topology, const Task& task, Policy policy,
                                      bool by_stage);

}  // namespace weir::placement
