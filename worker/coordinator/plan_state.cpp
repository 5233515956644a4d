// SPDX-License-Identifier: Apache-2.0
// State Move in PlanSwitch: which rank holds which layers, and at which step all can stop.
#include <algorithm>
#include <cmath>

#include "worker/coordinator/plan_switch.h"

namespace weir::coordinator {
namespace {

// A rank that begins at_step before its COMMIT arrives loses the state that others need. With short
// steps, at_step is therefore at least this long ahead.
constexpr double kCommitSeconds = 0.2;
constexpr double kMostAhead = 1000;  // steps; 0.2 s with steps of 0.2 ms

}  // namespace

std::string PlanSwitch::find_holders(const Members& members) {
  schedule::Plan& plan = attempt_->plan;
  plan.holders.clear();
  // A coordinator that is new to the ranks has no generation to move from. It decides by the state
  // that the ranks hold, as for Keep.
  if (plan.state != schedule::StateMove::kMove || !base_) return "";
  std::vector<bool> held;
  std::string missing;
  for (const schedule::RankPlace& rank : base_->ranks) {
    const schedule::LayerRange layers = base_->stages[static_cast<std::size_t>(rank.stage)];
    held.resize(std::max(held.size(), static_cast<std::size_t>(layers.last) + 1));
    const MemberState* const member = members.by_pod(rank.pod);
    const bool live = member != nullptr && member->connected() &&
                      member->member.pod_uid == rank.pod_uid && !lost_.contains(rank.replica);
    if (!live) {
      missing += (missing.empty() ? "" : ", ") + rank.pod;
      continue;
    }
    plan.holders.push_back({.pod = rank.pod,
                            .pod_uid = rank.pod_uid,
                            .ip = rank.ip,
                            .node = rank.node,
                            .data_port = rank.data_port,
                            .replica = rank.replica,
                            .stage = rank.stage,
                            .layers = layers});
    for (int layer = layers.first; layer <= layers.last; ++layer) {
      held[static_cast<std::size_t>(layer)] = true;
    }
  }
  const auto lacking = std::ranges::find(held, false);
  if (lacking != held.end()) {
    return "state Move: layer " + std::to_string(lacking - held.begin()) +
           " is nowhere live: " + missing + " is gone";
  }
  if (broken_) {
    return "state Move: the generation of plan " + std::to_string(base_->revision) +
           " is broken, its ranks need not hold the same step";
  }
  return "";
}

const schedule::LayerHolder* PlanSwitch::holder(const MemberState* state) const {
  if (state == nullptr || !attempt_) return nullptr;
  const auto& holders = attempt_->plan.holders;
  const auto found =
      std::ranges::find(holders, state->member.pod_uid, &schedule::LayerHolder::pod_uid);
  return found == holders.end() ? nullptr : &*found;
}

std::int64_t PlanSwitch::boundary(const Members& members) const {
  std::int64_t highest = 0;
  double shortest = 0;
  for (const schedule::LayerHolder& holder : attempt_->plan.holders) {
    const MemberState* const member = members.by_pod(holder.pod);
    if (member == nullptr) continue;
    highest = std::max(highest, member->step);
    const double seconds = member->step_seconds;
    if (seconds > 0) shortest = shortest > 0 ? std::min(shortest, seconds) : seconds;
  }
  const double ahead =
      shortest > 0 ? std::min(kMostAhead, std::ceil(kCommitSeconds / shortest)) : 0;
  return highest + kStepsAhead + static_cast<std::int64_t>(ahead);
}

}  // namespace weir::coordinator
