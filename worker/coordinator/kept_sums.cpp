// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/kept_sums.h"

#include <algorithm>
#include <cstddef>

#include "worker/base/check.h"
#include "worker/schedule/step_ids.h"

namespace weir::coordinator {
namespace {

// The ids that all ranks of the replica have; empty if they differ.
schedule::Ids ids_of_replica(const schedule::Plan& plan, int replica, std::int64_t step,
                             const std::vector<const protocol::Held*>& held) {
  const int total = static_cast<int>(plan.step_micro_batches());
  const schedule::Ids* common = nullptr;
  for (std::size_t i = 0; i < plan.ranks.size(); ++i) {
    if (plan.ranks[i].replica != replica) continue;
    if (held[i] == nullptr || held[i]->step != step || !held[i]->sums) return {};
    const protocol::KeptSums& sums = *held[i]->sums;
    const bool fits =
        sums.micro_batches == total && sums.micro_batch_size == plan.schedule.micro_batch_size &&
        describe(sums.codecs) == describe(plan.codecs) && schedule::are_legal(sums.ids, total);
    if (!fits || (common != nullptr && *common != sums.ids)) return {};
    common = &sums.ids;
  }
  return common != nullptr ? *common : schedule::Ids();
}

}  // namespace

std::vector<protocol::KeptIds> kept_sums(const schedule::Plan& plan, std::int64_t step,
                                         const std::vector<const protocol::Held*>& held) {
  WEIR_CHECK(held.size() == plan.ranks.size(), "one for each rank");
  std::vector<protocol::KeptIds> kept;
  if (schedule::averages(plan)) return kept;
  for (int replica = 0; replica < plan.replica_count(); ++replica) {
    schedule::Ids ids = ids_of_replica(plan, replica, step, held);
    const bool taken = std::ranges::any_of(
        kept, [&](const protocol::KeptIds& other) { return schedule::overlap(ids, other.ids); });
    if (!ids.empty() && !taken) kept.push_back({.replica = replica, .ids = std::move(ids)});
  }
  return kept;
}

}  // namespace weir::coordinator
