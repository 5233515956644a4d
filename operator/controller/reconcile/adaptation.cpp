// SPDX-License-Identifier: Apache-2.0
// Adaptation of the plan in force: whether a pass may adapt, and how the proposal of a tick is
// carried out (operator/adaptation/README.md).
#include <utility>
#include <variant>

#include "operator/adaptation/adapt.h"
#include "operator/api/fit.h"
#include "operator/api/names.h"
#include "operator/controller/reconcile/pass.h"

namespace weir::reconcile {
namespace {

// Whether an aborted plan may still come into force. If a switch breaks off after COMMIT, the ranks
// cannot return to the plan before; they start again with the new one, from the checkpoint. Ten
// further steps of the plan before show that the switch broke off earlier.
bool may_come_yet(Pass& pass) {
  const auto& report = pass.snapshot.report->body;
  if (!pass.refused || report.last_switch->outcome != protocol::Outcome::kAborted) return false;
  auto& memory = pass.adaptation;
  if (std::exchange(memory.aborted_revision, report.last_switch->revision) !=
      report.last_switch->revision) {
    memory.aborted_step = report.step;
  }
  return report.step < memory.aborted_step + facts::kOutcomeSteps;
}

bool may_adapt(Pass& pass) {
  const bool settled =
      pass.refused || pass.status.plan.applied_revision == pass.status.plan.revision;
  // A pod that is made again has not failed, but without it the plan in force does not run.
  return pass.plan != nullptr && pass.plan_lives && pass.snapshot.report && settled &&
         pass.snapshot.report->body.plan_revision == pass.plan->revision && pass.failures.empty() &&
         pass.now() - pass.snapshot.report->received <= pass.tunables.member_silent &&
         !pass.job().meta.annotations.contains(api::kFreezePlan) && !may_come_yet(pass);
}

// The new value of annotation weir.dev/replan, which demands an evaluation without cooldown.
std::optional<std::string> replan_request(const Pass& pass) {
  const auto found = pass.job().meta.annotations.find(api::kReplan);
  if (found == pass.job().meta.annotations.end()) return std::nullopt;
  std::string asked = api::cut(found->second, api::kMostReplanRequest);
  if (asked == pass.status.last_replan_request) return std::nullopt;
  return asked;
}

void show_clocks(Pass& pass, const adaptation::StatusClocks& clocks) {
  auto& status = pass.status;
  status.retune_last_change = clocks.retune_last_change;
  status.regroup_last_change = clocks.regroup_last_change;
  status.replace_last_change = clocks.replace_last_change;
  status.regroup_cooldown_seconds = clocks.regroup_cooldown_seconds;
  status.replace_cooldown_seconds = clocks.replace_cooldown_seconds;
}

void carry_out(Pass& pass, const gate::Proposal& proposal) {
  if (const auto* plan = std::get_if<schedule::Plan>(&proposal.change)) {
    return adopt_plan(pass, *plan, proposal.trigger, proposal.gain);
  }
  const auto& worker = std::get<gate::WorkerToReplace>(proposal.change);
  for (const Slot& slot : pass.slots) {
    if (slot.pod && slot.pod->meta.name == worker.pod) {
      return record_replacement(pass, slot, proposal.text);
    }
  }
}

}  // namespace

void adapt(Pass& pass) {
  if (!may_adapt(pass)) return;
  auto replan = replan_request(pass);
  auto tick =
      adaptation::tick(facts_of(pass), std::move(pass.adaptation.memory), replan.has_value());
  pass.adaptation.memory = std::move(tick.memory);
  if (tick.replan_taken) {
    pass.status.last_replan_request = *std::move(replan);
    pass.guarded = true;
  }
  show_clocks(pass, tick.clocks);
  if (!tick.measured_gain_percent.empty()) {
    pass.status.plan.measured_gain_percent = tick.measured_gain_percent;
  }
  if (!tick.missed.empty()) pass.set("Degraded", "True", "PredictedGainMissed", tick.missed);
  for (auto& event : tick.events) pass.out.events.push_back(std::move(event));
  if (tick.proposal) carry_out(pass, *tick.proposal);
  for (auto& event : tick.events_of_change) pass.out.events.push_back(std::move(event));
  if (tick.wake) pass.wake_at(*tick.wake);
}

}  // namespace weir::reconcile
