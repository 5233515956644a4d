// SPDX-License-Identifier: Apache-2.0
// The outcome of the last change: whether it is kept, and what it means for the next one.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "operator/adaptation/retune/propose.h"
#include "operator/adaptation/tick_parts.h"
#include "operator/facts/measured_times.h"
#include "worker/base/text.h"

namespace weir::adaptation {
namespace {

// A link whose rate changed by less counts as unchanged
// (operator/adaptation/gate/README.md "Outcome").
constexpr double kUnchangedRates = 0.10;
constexpr double kClearlySlower = 0.10;  // a retry that is slower by this part ends early

bool rates_unchanged(const std::vector<double>& before, const std::vector<double>& after) {
  if (before.size() != after.size()) return false;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (std::abs(after[i] - before[i]) > kUnchangedRates * before[i]) return false;
  }
  return true;
}

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

bool changes_shares(const facts::Facts& facts, const PlanChange& change) {
  return change.previous_sync || (change.schedule == change.previous &&
                                  change.previous_micro_batches != facts.plan->micro_batches);
}

// A change of shares or policy as an offer, or one of retune, and the record of its kind.
struct Judgeable {
  std::string offer;
  gate::Record& record;
};
Judgeable judgeable(const facts::Facts& facts, const PlanChange& change, Memory& memory) {
  if (change.previous_sync) return {shares::name(shares::Mode::kPartial), memory.shares.mode};
  if (changes_shares(facts, change)) {
    return {joined(facts.plan->micro_batches), memory.shares.shares};
  }
  return {change.text, memory.retune.record};
}

void report_missed(Tick& tick, const gate::Measured& measured, const gate::Judged& judged) {
  if (judged.verdict == gate::Verdict::kMissed) tick.missed = gate::missed_text(measured, judged);
}

gate::Clock& clock_of(Memory& memory, schedule::Trigger tier) {
  return tier == schedule::Trigger::kRegroup ? memory.repartition.clock : memory.replace.clock;
}

gate::Record& record_of(Memory& memory, schedule::Trigger tier) {
  return tier == schedule::Trigger::kRegroup ? memory.repartition.record : memory.replace.record;
}

gate::Rules rules_of(const facts::Facts& facts, schedule::Trigger tier) {
  const auto& adaptation = facts.spec.adaptation;
  const auto& spec = tier == schedule::Trigger::kRegroup ? adaptation.regroup : adaptation.replace;
  return gate::costly_rules(spec.min_gain_percent, spec.cooldown_seconds, false);
}

// Reports a switch of tier regroup with its cost.
void report_applied(const facts::Facts& facts, Tick& tick, RanksChange& change) {
  const auto& last = facts.report->last_switch;
  change.applied_step = facts.status.plan.applied_step;
  if (change.tier != schedule::Trigger::kRegroup) return;
  std::string cost;
  if (last && last->revision == change.revision) {
    cost = "moved " + megabytes(last->moved_bytes) + ", pause " + number(last->pause_seconds, 2) +
           " s, ";
    // After an abort the workers loaded a checkpoint, so the pause is not that of a move.
    if (facts.aborted_revision != change.revision) {
      tick.memory.repartition.pause_seconds =
          std::max(0.0, last->pause_seconds - change.move_seconds);
    }
  }
  say(tick, "Normal", "PlanRegrouped",
      "revision " + std::to_string(change.revision) + ": " + change.what + ", " + cost +
          "predicted +" + percent(change.predicted_gain) + " %");
}

// Keeps a change that the workers refused out until the members change.
void keep_refused_out(Memory& memory) {
  auto& change = memory.ranks_change;
  record_of(memory, change->tier).quarantine[change->offer] =
      std::numeric_limits<std::int64_t>::max();
  auto& cut = memory.repartition.previous_cut;
  if (change->is_retry && cut) {
    cut->retry_budget_seconds /= 2;  // the refused retry has cost nothing
    if (!cut->in_force) cut.reset();
  }
  change.reset();
}

// A change of a former leader that is not judged yet, reconstructed from its plan.
std::optional<RanksChange> unjudged(const facts::Facts& facts) {
  const schedule::Plan& plan = *facts.plan;
  const bool open = plan.trigger == schedule::Trigger::kRegroup && plan.predicted_gain > 0 &&
                    plan.predicted_step_seconds > 0 &&
                    facts.status.plan.revision == plan.revision &&
                    facts.status.plan.measured_gain_percent.empty();
  const auto parent = std::ranges::find(facts.plans, plan.parent, &schedule::Plan::revision);
  if (!open || parent == facts.plans.end() || repartition::same_ranks(*parent, plan)) {
    return std::nullopt;
  }
  RanksChange change;
  change.revision = plan.revision;
  change.previous = *parent;
  change.what = repartition::difference(*parent, plan);
  change.predicted_gain = plan.predicted_gain;
  change.before_seconds = plan.predicted_step_seconds * (1 + plan.predicted_gain);
  change.applied_step = facts.status.plan.applied_step;
  change.is_retry = std::ranges::any_of(facts.plans, [&](const schedule::Plan& other) {
    return other.revision < parent->revision && repartition::same_ranks(other, plan);
  });
  return change;
}

bool retry_failed(const facts::Facts& facts, const RanksChange& change, std::int64_t step) {
  return change.is_retry && step >= change.applied_step + repartition::kFailedRetrySteps &&
         change.before_seconds > 0 &&
         recent_step_seconds(facts) > (1 + kClearlySlower) * change.before_seconds;
}

// Whether the change can be judged now. Otherwise it is still open, or it is forgotten.
bool due(const facts::Facts& facts, Tick& tick) {
  auto& change = tick.memory.ranks_change;
  if (!change) change = unjudged(facts);
  if (!change) return false;
  if (change->revision == 0 && facts.plan->revision > change->after) {
    change->revision = facts.plan->revision;  // the plan after a replacement
  }
  if (facts.refused && facts.newest != nullptr && facts.newest->revision == change->revision) {
    keep_refused_out(tick.memory);
    return false;
  }
  if (change->revision == 0) return false;
  if (change->revision != facts.plan->revision) {
    // Another tier has made a change meanwhile, so the measurements show the effect of both.
    change.reset();
    return false;
  }
  if (change->applied_step < 0) report_applied(facts, tick, *change);
  const auto step = facts.report->step;
  const bool early =
      step < change->applied_step + facts::kOutcomeSteps && !retry_failed(facts, *change, step);
  // A retry is judged by its steps alone, so that it also ends if Prometheus does not answer.
  return !early && (network_known(facts) || change->is_retry);
}

// Returns to the rank map and cut before the judged change, if they are known.
std::optional<gate::Proposal> roll_back_ranks(const facts::Facts& facts, Tick& tick,
                                              const RanksChange& judged) {
  if (!judged.previous) return std::nullopt;
  say(tick, "Warning", "PlanRolledBack",
      "back to the ranks of revision " + std::to_string(judged.previous->revision) + ": " +
          judged.what + " made steps slower at unchanged link rates");
  return start_rollback(facts, tick.memory, *judged.previous, schedule::Trigger::kRegroup);
}

}  // namespace

void show_cooldowns(Tick& tick) {
  const auto seconds = [](const gate::Clock& clock) {
    return static_cast<int>(clock.cooldown.count());
  };
  tick.clocks.regroup_cooldown_seconds = seconds(tick.memory.repartition.clock);
  tick.clocks.replace_cooldown_seconds = seconds(tick.memory.replace.clock);
}

// The state of the network must be known, because a plan must not be rolled back for steps that a
// changed network made slow.
std::optional<gate::Proposal> judge_plan_change(const facts::Facts& facts, Tick& tick) {
  Memory& memory = tick.memory;
  auto& open = memory.plan_change;
  if (!open || open->revision != facts.plan->revision) return std::nullopt;
  if (open->applied_step < 0) open->applied_step = facts.status.plan.applied_step;
  const auto step = facts.report->step;
  if (step < open->applied_step + facts::kOutcomeSteps || !network_known(facts)) {
    return std::nullopt;
  }
  const PlanChange change = *std::exchange(open, std::nullopt);
  const gate::Measured measured{
      .before_seconds = change.before_seconds,
      .after_seconds = recent_step_seconds(facts),
      .predicted_gain = change.predicted_gain,
      .rates_unchanged = rates_unchanged(change.rates_before, link_rates(facts))};
  if (measured.before_seconds <= 0 || measured.after_seconds <= 0) return std::nullopt;
  auto [offer, record] = judgeable(facts, change, memory);
  const auto judged = gate::judge(measured, offer, step, retune::settings_of(facts.spec).rules,
                                  memory.retune.clock, record);
  memory.retune.clock = judged.clock;
  record = judged.record;
  tick.measured_gain_percent = percent(judged.measured_gain);
  say(tick, "Normal", "PlanOutcome",
      gate::outcome_text(change.revision, "", measured, judged, step - change.applied_step));
  report_missed(tick, measured, judged);
  if (judged.verdict != gate::Verdict::kRollback) return std::nullopt;
  const bool of_shares = changes_shares(facts, change);
  if (of_shares && !change.previous_sync) memory.shares.share_cost.current_shares = 0;
  schedule::Plan plan = *facts.plan;
  plan.schedule = change.previous;
  if (!change.previous_micro_batches.empty()) plan.micro_batches = change.previous_micro_batches;
  if (change.previous_sync) plan.sync = *change.previous_sync;
  say(tick, "Warning", "PlanRolledBack",
      (of_shares ? "back to shares " + joined(plan.micro_batches)
                 : "back to k=" + std::to_string(change.previous.k)) +
          ": the new plan was slower at unchanged link rates");
  return start_rollback(facts, memory, std::move(plan), schedule::Trigger::kRetune);
}

std::optional<gate::Proposal> judge_ranks_change(const facts::Facts& facts, Tick& tick) {
  Memory& memory = tick.memory;
  if (!due(facts, tick)) return std::nullopt;
  const RanksChange change = *std::exchange(memory.ranks_change, std::nullopt);
  const gate::Measured measured{
      .before_seconds = change.before_seconds,
      .after_seconds = recent_step_seconds(facts),
      .predicted_gain = change.predicted_gain,
      // A slow retry is rolled back even if other links have changed.
      .rates_unchanged =
          change.is_retry || (change.tier == schedule::Trigger::kRegroup &&
                              links_unchanged(change.links_before, measured_links(facts)))};
  if (measured.before_seconds <= 0 || measured.after_seconds <= 0) return std::nullopt;
  const auto step = facts.report->step;
  gate::Clock& clock = clock_of(memory, change.tier);
  gate::Record& record = record_of(memory, change.tier);
  auto judged =
      gate::judge(measured, change.offer, step, rules_of(facts, change.tier), clock, record);
  if (change.is_retry) {  // a failed retry does not change the tier's cooldown or quarantine
    judged.clock = clock;
    judged.record = record;
  }
  clock = judged.clock;
  record = judged.record;
  show_cooldowns(tick);
  tick.measured_gain_percent = percent(judged.measured_gain);
  say(tick, "Normal", "PlanOutcome",
      gate::outcome_text(change.revision, change.what, measured, judged,
                         step - change.applied_step) +
          "; next not before " + std::to_string(clock.cooldown.count()) + " s");
  if (!change.is_retry) report_missed(tick, measured, judged);
  if (judged.verdict != gate::Verdict::kRollback) return std::nullopt;
  return roll_back_ranks(facts, tick, change);
}

void refused(Memory& memory, const schedule::Plan* plan, std::uint32_t revision) {
  auto& change = memory.plan_change;
  if (!change || change->revision != revision) return;
  constexpr auto kForGood = std::numeric_limits<std::int64_t>::max();
  memory.retune.record.quarantine[change->text] = kForGood;
  if (plan != nullptr && change->schedule == change->previous) {
    memory.shares.shares.quarantine[joined(plan->micro_batches)] = kForGood;
  }
  change.reset();
}

}  // namespace weir::adaptation
