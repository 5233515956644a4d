// SPDX-License-Identifier: Apache-2.0
// The communicators of a rank with some of the other replicas of its stage, for averages: at most
// 16, the one that was used longest ago goes first. Driver thread only.
//
// Each rank keeps and drops on its own: whether all members of a group hold the same communicator
// is asked at each average (mean_rounds.h). One that is evicted is idle at all of its members, so
// ending it takes nothing from anybody.
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
  std::size_t rank = 0;      // of this one among them
  std::unique_ptr<Watched> comm;
  std::unique_ptr<SumStream> sums;
};

class Subgroups {
 public:
  static constexpr std::size_t kMost = 16;

  Subgroups(NcclApi& api, Watchdog& dog) : api_(api), dog_(dog) {}

  Subgroup* find(const std::vector<int>& members);  // null: none is held
  // find() as well as add() make it the one that was used last.
  Subgroup& add(Subgroup group);
  // Ends it. True: nothing of it uses any memory any more.
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
