// SPDX-License-Identifier: Apache-2.0
// The adaptation tick: when the tuner evaluates, how its decision becomes a plan, and whether the
// last change kept its promise (operator/adaptation/retune/README.md). This is tier retune; the
// tiers above are in tiers.h.
#include <cmath>
#include <utility>

#include "operator/adaptation/costing/costing_input.h"
#include "operator/adaptation/retune/memory_alarm.h"
#include "operator/adaptation/retune/tune.h"
#include "operator/api/fit.h"
#include "operator/controller/reconcile/pass.h"
#include "operator/controller/reconcile/tiers.h"
#include "operator/facts/node_bandwidth.h"

namespace weir::reconcile {
namespace {

retune::Settings settings_of(const api::JobSpec& spec) {
  retune::Settings settings;
  settings.rules.least_gain = spec.adaptation.retune.min_gain_percent / 100.0;
  settings.rules.cooldown = std::chrono::seconds(spec.adaptation.retune.cooldown_seconds);
  settings.k_min = spec.schedule.k_min;
  settings.k_max = spec.schedule.k_max.value_or(8);
  settings.k_fixed = spec.schedule.k_mode == "Fixed";
  settings.fixed_caps = spec.schedule.in_flight_caps;
  settings.family = facts::family_of(spec.schedule.type);
  settings.dispatch = facts::dispatch_of(spec);
  return settings;
}

// A link whose rate changed by less counts as unchanged (operator/adaptation/gate/README.md
// "Outcome").
constexpr double kUnchangedRates = 0.10;

bool rates_unchanged(const std::vector<double>& before, const std::vector<double>& after) {
  if (before.size() != after.size()) return false;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (std::abs(after[i] - before[i]) > kUnchangedRates * before[i]) return false;
  }
  return true;
}

// Text about the link whose rate is lowest against its usual rate, for events.
std::string link_text(const Pass& pass) {
  const facts::Facts facts = facts_of(pass);
  const estimator::LinkEstimate* link = nullptr;
  double worst_share = 1e300, usual = 0;
  for (const auto& candidate : pass.estimates.links) {
    if (candidate.now <= 0) continue;
    const double rate = usual_rate(facts, candidate);
    const double share = candidate.now / rate;
    if (link != nullptr && share >= worst_share) continue;
    link = &candidate;
    worst_share = share;
    usual = rate;
  }
  if (link == nullptr) return "no link measured";
  std::string text = "link " + link->from_node + "->" + link->to_node + " " +
                     bits_per_second(usual) + "->" + bits_per_second(link->now);
  if (link->since) {
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(pass.now() - *link->since).count();
    text += " for " + std::to_string(std::max<std::int64_t>(seconds, 0)) + " s";
  }
  return text;
}

// Judges the last change after it has run for long enough. The state of the network must be known,
// because a plan must not be rolled back for steps that a changed network made slow.
void check_outcome(Pass& pass) {
  auto& pending = pass.adaptation.pending;
  if (!pending || pending->revision != pass.plan->revision || !pass.snapshot.report) return;
  if (pending->applied_step < 0) pending->applied_step = pass.status.plan.applied_step;
  const auto step = pass.snapshot.report->body.step;
  if (step < pending->applied_step + facts::kOutcomeSteps || !network_known(facts_of(pass))) return;
  const gate::Measured measured{
      .before_seconds = pending->before_seconds,
      .after_seconds = recent_step_seconds(facts_of(pass)),
      .predicted_gain = pending->predicted_gain,
      .rates_unchanged = rates_unchanged(pending->rates_before, link_rates(facts_of(pass)))};
  if (measured.before_seconds <= 0 || measured.after_seconds <= 0) {
    pending.reset();
    return;
  }
  auto& tuner = pass.adaptation.tuner;
  const bool of_shares = changes_shares(pass, *pending);
  const ShareOffer offer =
      of_shares ? share_offer(pass, *pending) : ShareOffer{pending->text, tuner.record};
  const auto judged = gate::judge(measured, offer.name, step, settings_of(pass.spec()).rules,
                                  tuner.clock, offer.record);
  tuner.clock = judged.clock;
  offer.record = judged.record;
  if (of_shares && !pending->previous_sync && judged.verdict == gate::Verdict::kRollback) {
    pass.adaptation.sync.share_cost.current_shares = 0;
  }
  pass.status.plan.measured_gain_percent = percent(judged.measured_gain);
  pass.event(
      "Normal", "PlanOutcome",
      gate::outcome_text(pending->revision, "", measured, judged, step - pending->applied_step),
      "Adapt");
  if (judged.verdict == gate::Verdict::kMissed) {
    pass.set("Degraded", "True", "PredictedGainMissed", gate::missed_text(measured, judged));
  }
  const auto previous = pending->previous;
  const auto micro_batches = pending->previous_micro_batches;
  const auto sync = pending->previous_sync;
  pending.reset();
  if (judged.verdict != gate::Verdict::kRollback) return;
  schedule::Plan plan = *pass.plan;
  plan.schedule = previous;
  if (!micro_batches.empty()) plan.micro_batches = micro_batches;
  if (sync) plan.sync = *sync;
  pass.event("Warning", "PlanRolledBack",
             (of_shares ? "back to shares " + joined(plan.micro_batches)
                        : "back to k=" + std::to_string(previous.k)) +
                 ": the new plan was slower at unchanged link rates",
             "Adapt");
  start_rollback(pass, std::move(plan), schedule::Trigger::kRetune);
}

void apply(Pass& pass, const retune::Decision& decision) {
  const auto& change = *decision.change;
  const std::string note = decision.memory_guard
                               ? decision.reason
                               : "k " + std::to_string(pass.plan->schedule.k) + "->" +
                                     std::to_string(change.schedule.k) + ", " + link_text(pass) +
                                     ", predicted +" + percent(decision.gain) + " % (" +
                                     change.text + ")";
  if (pass.spec().adaptation.mode == "Observe") {
    if (pass.adaptation.last_proposal != change.text)
      pass.event("Normal", "PlanProposed", note, "Adapt");
    pass.adaptation.last_proposal = change.text;
    return;
  }
  AdaptationState::Pending pending;
  pending.schedule = change.schedule;
  pending.text = change.text;
  pending.previous = pass.plan->schedule;
  pending.previous_micro_batches = pass.plan->micro_batches;
  pending.before_seconds = sampled_step_seconds(facts_of(pass));
  pending.predicted_gain = decision.gain;
  pending.rates_before = link_rates(facts_of(pass));
  schedule::Plan plan = *pass.plan;
  plan.schedule = change.schedule;
  for (int& share : plan.micro_batches)
    share = share * pass.plan->schedule.micro_batch_size / change.schedule.micro_batch_size;
  plan.state = schedule::StateMove::kKeep;
  if (!decision.memory_guard) plan.predicted_step_seconds = change.seconds;
  adopt_plan(pass, std::move(plan), schedule::Trigger::kRetune, decision.gain);
  pending.revision = static_cast<std::uint32_t>(pass.status.plan.revision);
  // Caps that were lowered because of memory are not judged, since a rollback is impossible.
  if (!decision.memory_guard) pass.adaptation.pending = std::move(pending);
  pass.status.retune_last_change = pass.now();
  pass.event("Normal", "PlanRetuned", note, "Adapt");
}

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
         !pass.job().meta.annotations.contains("weir.dev/freeze-plan") && !may_come_yet(pass);
}

// Whether annotation weir.dev/replan has a new value, which demands an evaluation without cooldown.
bool replan_requested(Pass& pass) {
  const auto found = pass.job().meta.annotations.find("weir.dev/replan");
  if (found == pass.job().meta.annotations.end()) return false;
  const std::string asked = api::cut(found->second, api::kMostReplanRequest);
  if (asked == pass.status.last_replan_request) return false;
  pass.status.last_replan_request = asked;
  pass.guarded = true;
  return true;
}

}  // namespace

void adapt(Pass& pass) {
  const auto interval = std::chrono::seconds(pass.spec().adaptation.evaluation_interval_seconds);
  if (!may_adapt(pass)) return;
  note_step(facts_of(pass), pass.adaptation.history);
  const bool memory_short = retune::memory_is_short(free_memory(facts_of(pass)));
  if (!memory_short && continue_rollback(pass)) return;
  const auto revision_before = pass.status.plan.revision;
  check_outcome(pass);
  if (pass.status.plan.revision != revision_before || judge_tiers(pass)) return;
  if (follow_sync_spec(pass)) return;
  const bool retunes = pass.spec().adaptation.retune.enabled;
  if (pass.spec().adaptation.mode == "Off" || !(retunes || tiers_enabled(pass.spec()))) return;

  const auto& last = pass.adaptation.last_evaluation;
  const bool asked = replan_requested(pass);
  const bool fresh = network_known(facts_of(pass));
  // Each metrics tick wakes the job. So the pass wakes itself only for the rest of an interval if a
  // tick came too early. Without metrics only the memory guard is left, and the next pass for the
  // job's progress is soon enough for it. So thousands of idle jobs cost nothing.
  if (last && pass.now() < *last + interval && !asked) {
    if (fresh) pass.wake_at(*last + interval);
    return;
  }
  pass.adaptation.last_evaluation = pass.now();
  // A new rank map is judged before another change affects the step time.
  if (pass.adaptation.tiers.pending && !memory_short) return;
  if (fresh && retunes && rebalance(pass, asked)) return;
  // The memory guard needs no network metrics.
  if (!fresh && !memory_short) return;

  std::string why_not;
  const auto model = model_of(facts_of(pass), why_not);
  if (!model) return;
  retune::Input input{costing::costing_input(facts_of(pass), *model)};
  input.now = pass.now();
  input.settings = settings_of(pass.spec());
  input.free_memory = free_memory(facts_of(pass));
  auto& state = pass.adaptation.tuner;
  if (!fresh) input.rates = {};
  if (asked) input.settings.rules.cooldown = std::chrono::seconds(0);
  constexpr double kNever = 1e9;
  if (!retunes) input.settings.rules.least_gain = input.settings.min_gain_size = kNever;
  // A new leader reads the cooldown's clock from status.
  gate::resume(state.clock, pass.status.retune_last_change, 0);
  auto tuned = retune::tune(input, state);
  state = std::move(tuned.state);
  if (tuned.decision.change) return apply(pass, tuned.decision);
  if (fresh) escalate(pass, *model, input, tuned.decision, asked);
}

}  // namespace weir::reconcile
