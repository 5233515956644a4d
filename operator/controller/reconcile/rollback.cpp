// SPDX-License-Identifier: Apache-2.0
// Rollback: return to the plan before, because the new one was slower. If the workers refuse that
// plan, it is requested again. It was in force a moment ago with the same members, so the reason of
// a refusal (a pod that is not connected, no memory for two plans) is usually temporary.
#include <utility>

#include "operator/controller/reconcile/pass.h"
#include "operator/controller/reconcile/tiers.h"

namespace weir::reconcile {
namespace {

constexpr int kMostTries = 4;  // requests of one rollback; afterwards the tiers decide again
// Steps between a refusal and the next request, as between two changes of the tuner; then doubled.
constexpr int kFirstRetry = 8;

void request(Pass& pass, AdaptationState::Rollback rollback) {
  ++rollback.tries;
  rollback.refused_step = -1;
  adopt_plan(pass, rollback.plan, rollback.trigger, 0);
  rollback.revision = static_cast<std::uint32_t>(pass.status.plan.revision);
  pass.adaptation.tuner.last_change_step = pass.snapshot.report->body.step;
  if (rollback.trigger == schedule::Trigger::kRegroup) pass.adaptation.tuner.cost.loss_seconds = 0;
  pass.adaptation.rollback = std::move(rollback);
}

}  // namespace

void start_rollback(Pass& pass, schedule::Plan plan, schedule::Trigger trigger) {
  plan.state = trigger == schedule::Trigger::kRegroup ? schedule::StateMove::kMove
                                                      : schedule::StateMove::kKeep;
  plan.holders.clear();
  gate::nothing_offered(pass.adaptation.tuner.record);  // a rollback is a change, too
  request(pass, {.plan = std::move(plan), .trigger = trigger});
}

bool continue_rollback(Pass& pass) {
  auto& rollback = pass.adaptation.rollback;
  if (!rollback) return false;
  const bool waits = pass.refused && pass.newest != nullptr &&
                     pass.newest->revision == rollback->revision && rollback->tries < kMostTries &&
                     members_live(facts_of(pass), rollback->plan);
  if (!waits) {  // this or another plan is in force, or no further request can help
    rollback.reset();
    return false;
  }
  const auto step = pass.snapshot.report->body.step;
  if (rollback->refused_step < 0) rollback->refused_step = step;
  const int rest = kFirstRetry << (rollback->tries - 1);
  if (step < rollback->refused_step + rest) return true;
  pass.event("Warning", "PlanRolledBack",
             "back to the plan before, requested again: the workers refused revision " +
                 std::to_string(rollback->revision) + ": " +
                 pass.snapshot.report->body.last_switch->reason,
             "Adapt");
  request(pass, *rollback);
  return true;
}

}  // namespace weir::reconcile
