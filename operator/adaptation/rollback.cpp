// SPDX-License-Identifier: Apache-2.0
// Rollback: return to the plan before, because the new one was slower. If the workers refuse that
// plan, it is requested again. It was in force a moment ago with the same members, so the reason of
// a refusal (a pod that is not connected, no memory for two plans) is usually temporary.
#include <utility>

#include "operator/adaptation/tick_parts.h"

namespace weir::adaptation {
namespace {

constexpr int kMostTries = 4;  // requests of one rollback; afterwards the tiers decide again
// Steps between a refusal and the next request, as between two changes of the tiers; then doubled.
constexpr int kFirstRetry = 8;

gate::Proposal request(const facts::Facts& facts, Memory& memory, Rollback rollback) {
  ++rollback.tries;
  rollback.refused_step = -1;
  rollback.revision = facts.next_revision;
  memory.retune.last_change_step = facts.report->step;
  if (rollback.trigger == schedule::Trigger::kRegroup) memory.retune.cost.loss_seconds = 0;
  memory.rollback = std::move(rollback);
  return {.kind = gate::Kind::kRollback,
          .trigger = memory.rollback->trigger,
          .offer = {},
          .what = {},
          .text = {},
          .change = memory.rollback->plan,
          .judged = false};
}

}  // namespace

gate::Proposal start_rollback(const facts::Facts& facts, Memory& memory, schedule::Plan plan,
                              schedule::Trigger trigger) {
  plan.state = trigger == schedule::Trigger::kRegroup ? schedule::StateMove::kMove
                                                      : schedule::StateMove::kKeep;
  plan.holders.clear();
  gate::nothing_offered(memory.retune.record);  // a rollback is a change, too
  return request(facts, memory, {.plan = std::move(plan), .trigger = trigger});
}

Continued continue_rollback(const facts::Facts& facts, Tick& tick) {
  auto& rollback = tick.memory.rollback;
  if (!rollback) return {};
  const bool waits = facts.refused && facts.newest != nullptr &&
                     facts.newest->revision == rollback->revision && rollback->tries < kMostTries &&
                     members_live(facts, rollback->plan);
  if (!waits) {  // this or another plan is in force, or no further request can help
    rollback.reset();
    return {};
  }
  const auto step = facts.report->step;
  if (rollback->refused_step < 0) rollback->refused_step = step;
  const int rest = kFirstRetry << (rollback->tries - 1);
  if (step < rollback->refused_step + rest) return {true, std::nullopt};
  say(tick, "Warning", "PlanRolledBack",
      "back to the plan before, requested again: the workers refused revision " +
          std::to_string(rollback->revision) + ": " + facts.report->last_switch->reason);
  return {true, request(facts, tick.memory, *rollback)};
}

}  // namespace weir::adaptation
