// SPDX-License-Identifier: Apache-2.0
// The test as the coordinator that forms groups of replicas.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "tests/worker/engine/group.h"
#include "worker/base/units.h"

namespace weir::engine::test {

// Grants when as many replicas as the group wants are there; at the step `all_at` always everybody.
class Rounds {
 public:
  // deadline: of a round of some; 0: the engine's own. overlaps: so do averages of some.
  Rounds(int replicas, int stages, std::size_t wanted, std::int64_t all_at,
         std::chrono::nanoseconds deadline = {}, bool overlaps = false)
      : replicas_(replicas),
        stages_(stages),
        wanted_(wanted),
        all_at_(all_at),
        deadline_(deadline),
        overlaps_(overlaps) {}

  void attach(Group& group) { group_ = &group; }
  void on_ready(int replica, std::int64_t step) {
    const std::lock_guard lock(mutex_);
    ready_[replica] = step;
    grant_all();
  }
  // One replica less comes; who waits for it waits for nobody.
  void lose_one() {
    const std::lock_guard lock(mutex_);
    --wanted_;
    --replicas_;
    if (!ready_.empty() && ready_.size() >= wanted_) grant_all();
  }
  std::set<std::vector<int>> groups() {
    const std::lock_guard lock(mutex_);
    return groups_;
  }

 private:
  void grant_all() {
    std::int64_t next = 0;
    for (const auto& [r, at] : ready_) next = std::max(next, at);
    const bool all = next >= all_at_;
    if (ready_.size() < (all ? static_cast<std::size_t>(replicas_) : wanted_)) return;
    protocol::Grant grant{.round = ++round_,
                          .next_step = next,
                          .all = all,
                          .overlaps = overlaps_ && !all,
                          .deadline_seconds = to_seconds(deadline_)};
    for (const auto& [r, at] : ready_) grant.members.push_back(r);
    grant.weights.assign(ready_.size(), 1.0 / static_cast<double>(ready_.size()));
    for (const auto& [r, at] : ready_) {
      grant.step = at;
      for (int s = 0; s < stages_; ++s) {
        group_->engine(r * stages_ + s).mailbox().put(grant);
      }
    }
    groups_.insert(grant.members);
    ready_.clear();
  }

  int replicas_;
  const int stages_;
  std::size_t wanted_;
  const std::int64_t all_at_;
  const std::chrono::nanoseconds deadline_;
  const bool overlaps_;
  std::mutex mutex_;  // guards all below
  Group* group_ = nullptr;
  std::map<int, std::int64_t> ready_;
  std::int64_t round_ = 0;
  std::set<std::vector<int>> groups_;
};

inline schedule::Plan averaging(int stages, int layers, const std::vector<int>& shares) {
  schedule::Plan plan = plan_of(stages, layers, shares.front(), schedule::Family::kKfkb, 1,
                                schedule::Dispatch::kStrict);
  plan.micro_batches = shares;
  plan.sync = {.mode = schedule::SyncMode::kPartial, .group_size_max = 4};
  return plan;
}

}  // namespace weir::engine::test
