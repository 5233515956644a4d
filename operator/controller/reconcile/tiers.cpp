// SPDX-License-Identifier: Apache-2.0
// Common parts of tiers regroup and replace: when they are considered, the outcome of their
// changes, and their memory.
#include "operator/controller/reconcile/tiers.h"

#include <cmath>
#include <limits>

#include "operator/facts/node_bandwidth.h"

namespace weir::reconcile {
namespace {

constexpr double kUnchangedRates = 0.10;  // a link whose rate changed by less counts as unchanged
constexpr int kSearchesAhead = 2;         // evaluations that must favour an offer, adaptation/gate
constexpr double kClearlySlower = 0.10;   // a retry that is slower by this part ends early

// Whether the links that were measured before and after are unchanged; true if there are none.
bool links_unchanged(const std::vector<facts::RememberedLink>& before,
                     const std::vector<facts::RememberedLink>& after) {
  return std::ranges::all_of(after, [&](const facts::RememberedLink& link) {
    const auto same = std::ranges::find_if(before, [&](const facts::RememberedLink& old) {
      return old.from == link.from && old.to == link.to;
    });
    return same == before.end() || std::abs(link.rate - same->rate) <= kUnchangedRates * same->rate;
  });
}

gate::Clock& clock_of(TierMemory& tiers, schedule::Trigger tier) {
  return tier == schedule::Trigger::kRegroup ? tiers.regroup_clock : tiers.replace_clock;
}

gate::Record& record_of(TierMemory& tiers, schedule::Trigger tier) {
  return tier == schedule::Trigger::kRegroup ? tiers.repartition : tiers.replace;
}

const api::TierSpec& spec_of(const Pass& pass, schedule::Trigger tier) {
  const auto& adaptation = pass.spec().adaptation;
  return tier == schedule::Trigger::kRegroup ? adaptation.regroup : adaptation.replace;
}

void record_cooldowns(Pass& pass) {
  const auto& tiers = pass.adaptation.tiers;
  const auto seconds = [](const gate::Clock& clock) {
    return static_cast<int>(clock.cooldown.count());
  };
  pass.status.regroup_cooldown_seconds = seconds(tiers.regroup_clock);
  pass.status.replace_cooldown_seconds = seconds(tiers.replace_clock);
}

// Reports a switch of tier regroup with its cost.
void report_applied(Pass& pass, TierMemory::Pending& pending) {
  const auto& last = pass.snapshot.report->body.last_switch;
  pending.applied_step = pass.status.plan.applied_step;
  if (pending.tier != schedule::Trigger::kRegroup) return;
  std::string cost;
  if (last && last->revision == pending.revision) {
    cost = "moved " + megabytes(last->moved_bytes) + ", pause " + number(last->pause_seconds, 2) +
           " s, ";
    // After an abort the workers loaded a checkpoint, so the pause is not that of a move.
    if (pass.adaptation.aborted_revision != pending.revision) {
      pass.adaptation.tiers.pause_seconds =
          std::max(0.0, last->pause_seconds - pending.move_seconds);
    }
  }
  pass.event("Normal", "PlanRegrouped",
             "revision " + std::to_string(pending.revision) + ": " + pending.what + ", " + cost +
                 "predicted +" + percent(pending.predicted_gain) + " %",
             "Adapt");
}

void report_outcome(Pass& pass, const TierMemory::Pending& pending, const gate::Judged& judged,
                    const gate::Measured& measured, std::int64_t step) {
  pass.status.plan.measured_gain_percent = percent(judged.measured_gain);
  pass.event("Normal", "PlanOutcome",
             gate::outcome_text(pending.revision, pending.what, measured, judged,
                                step - pending.applied_step) +
                 "; next not before " + std::to_string(judged.clock.cooldown.count()) + " s",
             "Adapt");
  if (judged.verdict == gate::Verdict::kMissed && !pending.is_retry) {
    pass.set("Degraded", "True", "PredictedGainMissed", gate::missed_text(measured, judged));
  }
}

// Whether the cooldowns of both tiers last so long that a search can wait. The planner's search is
// the most expensive part of an evaluation.
bool rests(const Pass& pass) {
  const auto& adaptation = pass.spec().adaptation;
  const auto moment = moment_of(pass);
  const std::chrono::seconds ahead(kSearchesAhead * adaptation.evaluation_interval_seconds);
  const auto resting = [&](const api::TierSpec& tier, const gate::Clock& clock) {
    return !tier.enabled || gate::cooldown_left(moment.now, tier_rules(tier, false), clock) > ahead;
  };
  return resting(adaptation.regroup, pass.adaptation.tiers.regroup_clock) &&
         resting(adaptation.replace, pass.adaptation.tiers.replace_clock);
}

// Returns to the rank map and cut before the judged change, if they are known.
bool roll_back_ranks(Pass& pass, const TierMemory::Pending& judged) {
  if (!judged.previous) return false;
  pass.event("Warning", "PlanRolledBack",
             "back to the ranks of revision " + std::to_string(judged.previous->revision) + ": " +
                 judged.what + " made steps slower at unchanged link rates",
             "Adapt");
  start_rollback(pass, *judged.previous, schedule::Trigger::kRegroup);
  return true;
}

// Keeps a change that the workers refused out until the members change.
void keep_refused_out(Pass& pass) {
  auto& pending = pass.adaptation.tiers.pending;
  record_of(pass.adaptation.tiers, pending->tier).quarantine[pending->offer] =
      std::numeric_limits<std::int64_t>::max();
  auto& cut = pass.adaptation.tiers.previous_cut;
  if (pending->is_retry && cut) {
    cut->retry_budget_seconds /= 2;  // the refused retry has cost nothing
    if (!cut->in_force) cut.reset();
  }
  pending.reset();
}

// A change of a former leader that is not judged yet, reconstructed from its plan.
std::optional<TierMemory::Pending> unjudged(const Pass& pass) {
  const schedule::Plan& plan = *pass.plan;
  const bool open = plan.trigger == schedule::Trigger::kRegroup && plan.predicted_gain > 0 &&
                    plan.predicted_step_seconds > 0 && pass.status.plan.revision == plan.revision &&
                    pass.status.plan.measured_gain_percent.empty();
  const auto& plans = pass.snapshot.plans;
  const auto parent = std::ranges::find(plans, plan.parent, &schedule::Plan::revision);
  if (!open || parent == plans.end() || same_ranks(*parent, plan)) return std::nullopt;
  TierMemory::Pending pending;
  pending.revision = plan.revision;
  pending.previous = *parent;
  pending.what = difference(*parent, plan);
  pending.predicted_gain = plan.predicted_gain;
  pending.before_seconds = plan.predicted_step_seconds * (1 + plan.predicted_gain);
  pending.applied_step = pass.status.plan.applied_step;
  pending.is_retry = std::ranges::any_of(plans, [&](const schedule::Plan& other) {
    return other.revision < parent->revision && same_ranks(other, plan);
  });
  return pending;
}

bool retry_failed(const Pass& pass, const TierMemory::Pending& pending, std::int64_t step) {
  return pending.is_retry && step >= pending.applied_step + kFailedRetrySteps &&
         pending.before_seconds > 0 &&
         recent_step_seconds(facts_of(pass)) > (1 + kClearlySlower) * pending.before_seconds;
}

}  // namespace

std::string megabytes(std::int64_t bytes) {
  return number(static_cast<double>(bytes) / 1e6, bytes < 10'000'000 ? 2 : 0) + " MB";
}

gate::Moment moment_of(const Pass& pass) {
  const auto& tuner = pass.adaptation.tuner;
  const bool changes = pass.spec().adaptation.mode == "Auto";  // a proposal changes nothing
  return {.now = pass.now(),
          .step = pass.snapshot.report->body.step,
          .last_change_step = changes ? tuner.last_change_step : gate::Moment{}.last_change_step,
          .loss_seconds = tuner.cost.loss_seconds};
}

gate::Rules tier_rules(const api::TierSpec& tier, bool asked) {
  return {.least_gain = tier.min_gain_percent / 100.0,
          .or_equal = true,
          .wins_needed = 2,
          .same_offer = true,
          .cooldown = std::chrono::seconds(asked ? 0 : tier.cooldown_seconds),
          .steps_between = gate::kStepsBetween,
          .must_repay = true,
          .when_rates_changed = gate::Rules::Changed::kMissedOnly};
}

bool tiers_enabled(const api::JobSpec& spec) {
  return spec.adaptation.regroup.enabled || spec.adaptation.replace.enabled;
}

void propose(Pass& pass, const std::string& name, const std::string& note) {
  if (pass.adaptation.tiers.last_proposal != name) {
    pass.event("Normal", "PlanProposed", note, "Adapt");
  }
  pass.adaptation.tiers.last_proposal = name;
}

void after_action(Pass& pass, TierMemory::Pending pending) {
  auto& adaptation = pass.adaptation;
  pending.before_seconds = sampled_step_seconds(facts_of(pass));
  pending.links_before = measured_links(facts_of(pass));
  (pending.tier == schedule::Trigger::kRegroup ? pass.status.regroup_last_change
                                               : pass.status.replace_last_change) = pass.now();
  adaptation.tiers.pending = std::move(pending);
  adaptation.tiers.proposal.reset();
  adaptation.pending.reset();  // a change of retune cannot be judged any more
  adaptation.tuner.last_change_step = pass.snapshot.report->body.step;
  gate::nothing_offered(adaptation.tuner.record);
  adaptation.tuner.cost.loss_seconds = 0;
  record_cooldowns(pass);
}

bool judge_tiers(Pass& pass) {
  auto& tiers = pass.adaptation.tiers;
  facts::remember_links(pass.adaptation.history.links, carrying_links(facts_of(pass)), pass.now());
  if (!tiers.pending) tiers.pending = unjudged(pass);
  if (!tiers.pending) return false;
  if (tiers.pending->revision == 0 && pass.plan->revision > tiers.pending->after) {
    tiers.pending->revision = pass.plan->revision;  // the plan after a replacement
  }
  if (pass.refused && pass.newest != nullptr && pass.newest->revision == tiers.pending->revision) {
    keep_refused_out(pass);
    return false;
  }
  if (tiers.pending->revision == 0) return false;
  if (tiers.pending->revision != pass.plan->revision) {
    // Another tier has made a change meanwhile, so the measurements show the effect of both.
    tiers.pending.reset();
    return false;
  }
  if (tiers.pending->applied_step < 0) report_applied(pass, *tiers.pending);
  const auto step = pass.snapshot.report->body.step;
  const bool early = step < tiers.pending->applied_step + facts::kOutcomeSteps &&
                     !retry_failed(pass, *tiers.pending, step);
  // A retry is judged by its steps alone, so that it also ends if Prometheus does not answer.
  if (early || !(network_known(facts_of(pass)) || tiers.pending->is_retry)) return false;
  const TierMemory::Pending pending = *std::exchange(tiers.pending, std::nullopt);
  const gate::Measured measured{
      .before_seconds = pending.before_seconds,
      .after_seconds = recent_step_seconds(facts_of(pass)),
      .predicted_gain = pending.predicted_gain,
      // A slow retry is rolled back even if other links have changed.
      .rates_unchanged = pending.is_retry ||
                         (pending.tier == schedule::Trigger::kRegroup &&
                          links_unchanged(pending.links_before, measured_links(facts_of(pass))))};
  if (measured.before_seconds <= 0 || measured.after_seconds <= 0) return false;
  auto judged =
      gate::judge(measured, pending.offer, step, tier_rules(spec_of(pass, pending.tier), false),
                  clock_of(tiers, pending.tier), record_of(tiers, pending.tier));
  if (pending.is_retry) {  // a failed retry does not change the tier's cooldown or quarantine
    judged.clock = clock_of(tiers, pending.tier);
    judged.record = record_of(tiers, pending.tier);
  }
  clock_of(tiers, pending.tier) = judged.clock;
  record_of(tiers, pending.tier) = judged.record;
  record_cooldowns(pass);
  report_outcome(pass, pending, judged, measured, step);
  return judged.verdict == gate::Verdict::kRollback && roll_back_ranks(pass, pending);
}

void escalate(Pass& pass, const planner::Model& model, const costing::Input& input,
              const retune::Decision& decision, bool asked) {
  const auto& adaptation = pass.spec().adaptation;
  auto& tiers = pass.adaptation.tiers;
  if (!tiers_enabled(pass.spec()) || tiers.pending || decision.current_seconds <= 0) return;
  gate::resume(tiers.regroup_clock, pass.status.regroup_last_change,
               pass.status.regroup_cooldown_seconds);
  gate::resume(tiers.replace_clock, pass.status.replace_last_change,
               pass.status.replace_cooldown_seconds);
  if (retry_previous_cut(pass, model, input, decision.current_seconds)) return;
  // No tier is considered if nothing is wrong that retune cannot solve, or if retune is about to
  // act.
  const bool bound = !decision.escalation.link_bound.empty();
  const bool retunes = pass.adaptation.tuner.record.wins_in_row > 0 && adaptation.retune.enabled;
  const bool wrong = bound || decision.escalation.loss_seconds > 0;
  if (!asked && (!wrong || (retunes && !bound) || rests(pass))) {
    gate::nothing_offered(tiers.repartition);
    gate::nothing_offered(tiers.replace);
    tiers.proposal.reset();
    return;
  }
  bool enough = false;
  if (adaptation.regroup.enabled) {
    // A search is expensive, so it is repeated only if the tuner has new inputs.
    const bool news = !decision.candidates.empty() || asked || !tiers.proposal ||
                      tiers.proposal_revision != pass.plan->revision;
    if (news) {
      ++tiers.searches;
      tiers.proposal = best_repartition(pass, model, input, decision.current_seconds);
      tiers.proposal_revision = pass.plan->revision;
    }
    enough = consider_repartition(pass, decision.current_seconds, asked);
    if (pass.adaptation.tiers.pending) return;
  }
  if (!enough && adaptation.replace.enabled) {
    consider_replacement(pass, model, input, decision.current_seconds, asked);
  }
}

void forget_ranks(Pass& pass) {
  TierMemory tiers = std::move(pass.adaptation.tiers);
  if (tiers.pending && tiers.pending->revision != 0) tiers.pending.reset();
  tiers.proposal.reset();
  tiers.previous_cut.reset();
  tiers.sought_previous_cut.reset();
  tiers.last_proposal.clear();
  tiers.repartition = tiers.replace = gate::Record{};
  // The cooldown was doubled because of rank maps of other members.
  tiers.regroup_clock.cooldown = std::chrono::seconds(0);
  pass.status.regroup_cooldown_seconds = 0;
  std::vector<facts::RememberedLink> links = std::move(pass.adaptation.history.links);
  pass.adaptation = AdaptationState{};
  pass.adaptation.tiers = std::move(tiers);
  pass.adaptation.history.links = std::move(links);
}

}  // namespace weir::reconcile
