// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/cover.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "worker/schedule/step_ids.h"

namespace weir::coordinator {
namespace {

using namespace std::chrono_literals;

// With few replicas a step takes longer. So many are done before the others can join again: one
// until the generation counts as applied, and two to the boundary.
constexpr int kStepsUntilJoin = 3;
// A container that restarts in place takes 1 s or longer: its kubelet looks each second.
constexpr auto kSoonestReturn = 1s, kLatestReturn = 4s;

}  // namespace

std::vector<int> redistributed_shares(const std::vector<int>& shares, const std::set<int>& lost) {
  std::vector<int> living = shares;
  for (const int replica : lost) living[static_cast<std::size_t>(replica)] = 0;
  return schedule::apportioned(std::accumulate(shares.begin(), shares.end(), 0), living);
}

schedule::Plan without_replicas(schedule::Plan plan, const std::set<int>& lost) {
  const std::vector<int> shares = redistributed_shares(plan.micro_batches, lost);
  plan.micro_batches.clear();
  std::vector<int> number(shares.size(), -1);
  for (std::size_t r = 0; r < shares.size(); ++r) {
    if (lost.contains(static_cast<int>(r))) continue;
    number[r] = plan.replica_count();
    plan.micro_batches.push_back(shares[r]);
  }
  std::erase_if(plan.ranks,
                [&](const schedule::RankPlace& rank) { return lost.contains(rank.replica); });
  for (schedule::RankPlace& rank : plan.ranks) {
    rank.replica = number[static_cast<std::size_t>(rank.replica)];
  }
  plan.holders.clear();
  plan.predicted_step_seconds = plan.predicted_gain = 0;  // of all replicas
  return plan;
}

int number_in_whole(int replica, const std::set<int>& lost) {
  for (const int one : lost) replica += one <= replica ? 1 : 0;
  return replica;
}

std::set<int> replicas_that_lack_ranks(const schedule::Plan& plan, const Members& members,
                                       bool& leaves_only) {
  std::set<int> lost;
  leaves_only = true;
  for (const schedule::RankPlace& rank : plan.ranks) {
    const MemberState* const member = members.by_pod(rank.pod);
    const bool same =
        member != nullptr && (rank.pod_uid.empty() || rank.pod_uid == member->member.pod_uid);
    const bool leaves = same && member->leaving;
    if (same && member->connected() && !leaves) continue;
    lost.insert(rank.replica);
    leaves_only = leaves_only && leaves;
  }
  return lost;
}

// Covering costs time where the lost ranks are back soon: a few steps take longer than with all.
// Where that costs less than the soonest return, it is right whatever comes. Otherwise the wait is
// as long as what it might save, so it never costs more than twice the best choice.
std::chrono::nanoseconds wait_before_cover(std::chrono::nanoseconds step, int living, int lost) {
  const std::chrono::duration<double> cost =
      std::chrono::duration<double>(step) * kStepsUntilJoin * lost / std::max(1, living);
  if (cost < kSoonestReturn) return 0s;
  return cost < kLatestReturn ? std::chrono::duration_cast<std::chrono::nanoseconds>(cost)
                              : std::chrono::nanoseconds(kLatestReturn);
}

}  // namespace weir::coordinator
