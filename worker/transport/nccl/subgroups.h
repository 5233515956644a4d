// SPDX-License-Identifier: Apache-2.0
// The communicators of a rank with some of the other replicas of its stage, for averages. At most
// 16 are kept; the least recently used one is dropped first. Driver thread only.
//
// Each rank keeps and drops them on its own: each average checks whether all members of a group
// hold the same communicator (mean_rounds.h). An evicted communicator is idle at all of its
// members, so its end disturbs no member.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "worker/transport/nccl/sum_stream.h"
#include "worker/transport/nccl/watchdog.h"

namespace weir::transport::nccl {

struct Subgroup {
  UniqueId id{};
  std::vector<int> members;  // replicas in rising order
  std::size_t rank = 0;      // of this replica among the members
  std::unique_ptr<Watched> comm;
  std::unique_ptr<SumStream> sums;
};

class Subgroups {
 public:
  static constexpr std::size_t kMost = 16;

  Subgroups(NcclApi& api, Watchdog& dog) : api_(api), dog_(dog) {}

  Subgroup* find(const std::vector<int>& members);  // null if none is held
  // find() and add() mark the group as the last used one.
  Subgroup& add(Subgroup group);
  // Ends the communicator. Returns true if it no longer uses any memory.
  bool drop(const std::vector<int>& members);
  std::size_t size() const { return held_.size(); }

 private:
  using Held = std::list<Subgroup>;  // the last used one first
  Held::iterator place_of(const std::vector<int>& members);
  bool end(Held::iterator group);

  NcclApi& api_;
  Watchdog& dog_;
  Held held_;
};

}  // namespace weir::transport::nccl
