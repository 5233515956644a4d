// SPDX-License-Identifier: Apache-2.0
// Going back to the plan before, and again when the workers would not have it: that plan was in
// force a moment ago with the same members, so what speaks against it (a pod that is not connected
// for a moment, no room for two plans) passes.
#include <utility>

#include "operator/controller/reconcile/pass.h"
#include "operator/controller/reconcile/tiers.h"

namespace weir::reconcile {
namespace {

constexpr int kMostTries = 4;  // of one way back; then it is the tiers' business again
// In steps, as between two changes of the tuner; then twice that.
constexpr int kFirstRetry = 8;

void go(Pass& pass, AdaptationState::Undo back) {
  ++back.tries;
  back.refused_step = -1;
  adopt_plan(pass, back.plan, back.trigger, 0);
  back.revision = static_cast<std::uint32_t>(pass.status.plan.revision);
  pass.adaptation.tuner.last_change_step = pass.snapshot.report->body.step;
  if (back.trigger == schedule::Trigger::kRegroup) tuner::acted(pass.adaptation.tuner);
  pass.adaptation.undo = std::move(back);
}

}  // namespace

void undo(Pass& pass, schedule::Plan plan, schedule::Trigger trigger) {
  plan.state = trigger == schedule::Trigger::kRegroup ? schedule::StateMove::kMove
                                                      : schedule::StateMove::kKeep;
  plan.holders.clear();
  go(pass, {.plan = std::move(plan), .trigger = trigger});
}

bool goes_back(Pass& pass) {
  auto& memory = pass.adaptation.undo;
  if (!memory) return false;
  const bool waits = pass.refused && pass.newest != nullptr &&
                     pass.newest->revision == memory->revision && memory->tries < kMostTries &&
                     members_live(pass, memory->plan);
  if (!waits) {  // it is in force, or another plan is, or it will not be
    memory.reset();
    return false;
  }
  const auto step = pass.snapshot.report->body.step;
  if (memory->refused_step < 0) memory->refused_step = step;
  const int rest = kFirstRetry << (memory->tries - 1);
  if (step < memory->refused_step + rest) return true;
  pass.event("Warning", "PlanRolledBack",
             "back to the plan before once more: the workers refused revision " +
                 std::to_string(memory->revision) + ": " +
                 pass.snapshot.report->body.last_switch->reason,
             "Adapt");
  go(pass, *memory);
  return true;
}

}  // namespace weir::reconcile
