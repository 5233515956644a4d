// SPDX-License-Identifier: Apache-2.0
// Adaptation of the plan in force: whether a pass may adapt, and how the proposal of a tick is
// carried out (operator/adaptation/README.md).
#include <cstdlib>
#include <utility>
#include <variant>

#include "operator/adaptation/adapt.h"
#include "operator/api/fit.h"
#include "operator/api/names.h"
#include "operator/controller/reconcile/lifecycle/lifecycle.h"
#include "operator/controller/reconcile/plans/plans.h"
#include "operator/facts/measured_times.h"

namespace weir::reconcile {
namespace {

// Whether an aborted plan may still come into force. If a switch breaks off after COMMIT, the ranks
// cannot return to the plan before; they start again with the new one, from the checkpoint. Ten
// further steps of the plan before show that the switch broke off earlier.
bool may_come_yet(const View& view, Draft& draft) {
  const auto& report = view.snapshot.report->body;
  if (!view.refused || report.last_switch->outcome != protocol::Outcome::kAborted) return false;
  auto& memory = draft.adaptation;
  if (std::exchange(memory.aborted_revision, report.last_switch->revision) !=
      report.last_switch->revision) {
    memory.aborted_step = report.step;
  }
  return report.step < memory.aborted_step + facts::kOutcomeSteps;
}

bool may_adapt(const View& view, Draft& draft) {
  const bool settled =
      view.refused || draft.status.plan.applied_revision == draft.status.plan.revision;
  // A pod that is made again has not failed, but without it the plan in force does not run.
  return view.plan != nullptr && view.plan_lives && view.snapshot.report && settled &&
         view.snapshot.report->body.plan_revision == view.plan->revision && view.failures.empty() &&
         view.snapshot.report->body.lost_replicas.empty() && !silent(view, draft) &&
         !view.job().meta.annotations.contains(api::kFreezePlan) && !may_come_yet(view, draft);
}

// The new value of annotation weir.dev/replan, which demands an evaluation without cooldown.
std::optional<std::string> replan_request(const View& view, const Draft& draft) {
  const auto found = view.job().meta.annotations.find(api::kReplan);
  if (found == view.job().meta.annotations.end()) return std::nullopt;
  std::string asked = api::cut(found->second, api::kMostReplanRequest);
  if (asked == draft.status.last_replan_request) return std::nullopt;
  return asked;
}

void show_clocks(Draft& draft, const adaptation::StatusClocks& clocks) {
  auto& status = draft.status;
  status.retune_last_change = clocks.retune_last_change;
  status.regroup_last_change = clocks.regroup_last_change;
  status.replace_last_change = clocks.replace_last_change;
  status.regroup_cooldown_seconds = clocks.regroup_cooldown_seconds;
  status.replace_cooldown_seconds = clocks.replace_cooldown_seconds;
  status.compress_last_change = clocks.compress_last_change;
  status.compress_cooldown_seconds = clocks.compress_cooldown_seconds;
}

// A step scatters, so a percentage that is shown stays until it has moved by more than one point.
void show(std::optional<int> percent, std::optional<int>& shown) {
  constexpr int kSteady = 1;
  if (percent && (!shown || std::abs(*percent - *shown) > kSteady)) shown = percent;
}
void show_bound(api::PlanStatus& plan, const adaptation::Tick& tick) {
  show(tick.bound_simulated, plan.bound_percent_simulated);
  show(tick.bound_measured, plan.bound_percent_measured);
}

void carry_out(const View& view, Draft& draft, const gate::Proposal& proposal) {
  if (const auto* plan = std::get_if<schedule::Plan>(&proposal.change)) {
    adopt_plan(view, draft, *plan, proposal.trigger, proposal.gain);
    if (proposal.gain > 0) {
      draft.status.plan.predicted_gain_interval =
          gate::interval_text(draft.adaptation.memory.calibration.around(
              proposal.gain, adaptation::tier_of(proposal.kind)));
    }
    return;
  }
  const auto& worker = std::get<gate::WorkerToReplace>(proposal.change);
  for (const Slot& slot : view.slots) {
    if (slot.pod && slot.pod->meta.name == worker.pod) {
      return record_replacement(view, draft, slot, proposal.text);
    }
  }
}

}  // namespace

void adapt(const View& view, Draft& draft) {
  if (!may_adapt(view, draft)) return;
  auto replan = replan_request(view, draft);
  auto tick = adaptation::tick(facts_of(view, draft), std::move(draft.adaptation.memory),
                               replan.has_value());
  draft.adaptation.memory = std::move(tick.memory);
  if (tick.replan_taken) {
    draft.status.last_replan_request = *std::move(replan);
    draft.guarded = true;
  }
  show_clocks(draft, tick.clocks);
  if (!tick.measured_gain_percent.empty()) {
    draft.status.plan.measured_gain_percent = tick.measured_gain_percent;
    draft.status.plan.measured_gain_error = tick.measured_gain_error;
  }
  draft.out.judged = tick.judged;
  show_bound(draft.status.plan, tick);
  if (!tick.missed.empty()) draft.set("Degraded", "True", "PredictedGainMissed", tick.missed);
  for (auto& event : tick.events) draft.out.events.push_back(std::move(event));
  if (tick.proposal) carry_out(view, draft, *tick.proposal);
  for (auto& event : tick.events_of_change) draft.out.events.push_back(std::move(event));
  if (tick.wake) draft.wake_at(*tick.wake);
}

}  // namespace weir::reconcile
