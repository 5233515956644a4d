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

using gate::Kind;

// A former leader's prediction is all that is known of the plan before.
constexpr double kPredictedError = 0.10;

bool of_ranks(const Change& change) {
  return change.kind == Kind::kRepartition || change.kind == Kind::kRetry ||
         change.kind == Kind::kReplace;
}

bool of_codecs(const Change& change) {
  return change.kind == Kind::kCompress || change.kind == Kind::kDecompress;
}

bool of_mode(const Change& change) {
  return change.kind == Kind::kShares && change.offer == shares::name(shares::Mode::kPartial);
}

gate::Clock& clock_of(Memory& memory, const Change& change) {
  if (of_codecs(change)) return memory.compression.clock;
  if (!of_ranks(change)) return memory.retune.clock;
  return change.kind == Kind::kReplace ? memory.replace.clock : memory.repartition.clock;
}

gate::Record& record_of(Memory& memory, const Change& change) {
  if (of_mode(change)) return memory.shares.mode;
  if (change.kind == Kind::kShares) return memory.shares.shares;
  if (of_codecs(change)) return memory.compression.coarser;
  if (!of_ranks(change)) return memory.retune.record;
  return change.kind == Kind::kReplace ? memory.replace.record : memory.repartition.record;
}

gate::Rules rules_of(const facts::Facts& facts, const Change& change) {
  if (of_codecs(change)) return compression::rules_of(facts.spec);
  if (!of_ranks(change)) return retune::settings_of(facts.spec).rules;
  const auto& adaptation = facts.spec.adaptation;
  const auto& spec = change.kind == Kind::kReplace ? adaptation.replace : adaptation.regroup;
  return gate::costly_rules(spec.min_gain_percent, spec.cooldown_seconds, false);
}

// Reports a switch of tier regroup with its cost.
void report_applied(const facts::Facts& facts, Tick& tick, Change& change) {
  const auto& last = facts.report->last_switch;
  change.applied_step = facts.status.plan.applied_step;
  if (change.kind == Kind::kReplace) return;
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
  record_of(memory, *change).quarantine[change->offer] = std::numeric_limits<std::int64_t>::max();
  auto& cut = memory.repartition.previous_cut;
  if (change->kind == Kind::kRetry && cut) {
    cut->retry_budget_seconds /= 2;  // the refused retry has cost nothing
    if (!cut->in_force) cut.reset();
  }
  change.reset();
}

// A change of a former leader that is not judged yet, reconstructed from its plan.
std::optional<Change> unjudged(const facts::Facts& facts) {
  const schedule::Plan& plan = *facts.plan;
  const bool open = plan.trigger == schedule::Trigger::kRegroup && plan.predicted_gain > 0 &&
                    plan.predicted_step_seconds > 0 &&
                    facts.status.plan.revision == plan.revision &&
                    facts.status.plan.measured_gain_percent.empty();
  const auto parent = std::ranges::find(facts.plans, plan.parent, &schedule::Plan::revision);
  if (!open || parent == facts.plans.end() || repartition::same_ranks(*parent, plan)) {
    return std::nullopt;
  }
  Change change;
  change.revision = plan.revision;
  change.previous = *parent;
  change.what = repartition::difference(*parent, plan);
  change.predicted_gain = plan.predicted_gain;
  const double seconds = plan.predicted_step_seconds * (1 + plan.predicted_gain);
  change.before = {.steps = facts::kOutcomeSteps,
                   .step_seconds = seconds,
                   .step_error = kPredictedError * seconds,
                   .conditions = {}};
  change.applied_step = facts.status.plan.applied_step;
  const bool is_retry = std::ranges::any_of(facts.plans, [&](const schedule::Plan& other) {
    return other.revision < parent->revision && repartition::same_ranks(other, plan);
  });
  change.kind = is_retry ? Kind::kRetry : Kind::kRepartition;
  return change;
}

// Whether the plan of the change is in force. Otherwise it is still open, or it is forgotten.
bool in_force(const facts::Facts& facts, Tick& tick) {
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
  return true;
}

// Returns to what the change has replaced.
gate::Proposal roll_back(const facts::Facts& facts, Tick& tick, const Change& change) {
  const schedule::Plan& previous = *change.previous;
  if (of_ranks(change)) {
    say(tick, "Warning", "PlanRolledBack",
        "back to the ranks of revision " + std::to_string(previous.revision) + ": " + change.what +
            " made steps slower on the same network");
    return start_rollback(facts, tick.memory, previous, schedule::Trigger::kRegroup);
  }
  const bool shares = change.kind == Kind::kShares;
  if (shares && !of_mode(change)) tick.memory.shares.share_cost.current_shares = 0;
  say(tick, "Warning", "PlanRolledBack",
      (of_codecs(change) ? "back from " + change.what
       : shares          ? "back to shares " + joined(previous.micro_batches)
                         : "back to k=" + std::to_string(previous.schedule.k)) +
          ": the new plan was slower on the same network");
  schedule::Plan plan = *facts.plan;
  plan.schedule = previous.schedule;
  plan.micro_batches = previous.micro_batches;
  plan.sync = previous.sync;
  plan.codecs = previous.codecs;
  return start_rollback(
      facts, tick.memory, std::move(plan),
      of_codecs(change) ? schedule::Trigger::kCompress : schedule::Trigger::kRetune);
}

// A proposal is a rollback.
std::optional<gate::Proposal> judge(const facts::Facts& facts, Tick& tick, const Change& change,
                                    const gate::Measured& measured) {
  if (measured.before_seconds <= 0 || measured.after_seconds <= 0) return std::nullopt;
  const auto step = facts.report->step;
  gate::Clock& clock = clock_of(tick.memory, change);
  gate::Record& record = record_of(tick.memory, change);
  const auto judged =
      gate::judge(measured, change.offer, step, rules_of(facts, change), clock, record);
  // A failed retry does not change the tier's cooldown or quarantine.
  const bool is_retry = change.kind == Kind::kRetry;
  if (!is_retry) {
    clock = judged.clock;
    record = judged.record;
  }
  if (of_ranks(change) || of_codecs(change)) show_cooldowns(tick);
  tick.measured_gain_percent = percent(judged.measured_gain);
  tick.measured_gain_error = percent(judged.gain_error);
  // Predictions of codecs teach no tier: they leave out that links share ports.
  if (measured.predicted_now && !measured.restated && !of_codecs(change)) {
    tick.judged = gate::observe(tick.memory.calibration, tier_of(change.kind),
                                *measured.predicted_now, judged.measured_gain);
    gate::learn(tick.memory.calibration, *tick.judged);
  }
  std::string text = gate::outcome_text(change.revision, change.what, measured, judged);
  if (of_ranks(change)) {
    text += "; next not before " + std::to_string(clock.cooldown.count()) + " s";
  }
  say(tick, "Normal", "PlanOutcome", std::move(text));
  if (judged.verdict == gate::Verdict::kMissed && !is_retry) {
    tick.missed = gate::missed_text(measured, judged);
  }
  if (judged.verdict != gate::Verdict::kRollback || !change.previous) return std::nullopt;
  return roll_back(facts, tick, change);
}

}  // namespace

void show_cooldowns(Tick& tick) {
  const auto seconds = [](const gate::Clock& clock) {
    return static_cast<int>(clock.cooldown.count());
  };
  tick.clocks.regroup_cooldown_seconds = seconds(tick.memory.repartition.clock);
  tick.clocks.replace_cooldown_seconds = seconds(tick.memory.replace.clock);
  tick.clocks.compress_cooldown_seconds = seconds(tick.memory.compression.clock);
}

std::optional<gate::Proposal> judge_plan_change(const facts::Facts& facts, Tick& tick) {
  auto& open = tick.memory.plan_change;
  if (!open || open->revision != facts.plan->revision) return std::nullopt;
  if (open->applied_step < 0) open->applied_step = facts.status.plan.applied_step;
  const auto measured = compare(facts, *open, tick.memory.calibration);
  if (!measured) return std::nullopt;
  return judge(facts, tick, *std::exchange(open, std::nullopt), *measured);
}

std::optional<gate::Proposal> judge_ranks_change(const facts::Facts& facts, Tick& tick) {
  if (!in_force(facts, tick)) return std::nullopt;
  const auto measured = compare(facts, *tick.memory.ranks_change, tick.memory.calibration);
  if (!measured) return std::nullopt;
  return judge(facts, tick, *std::exchange(tick.memory.ranks_change, std::nullopt), *measured);
}

void refused(Memory& memory, const schedule::Plan* plan, std::uint32_t revision) {
  const auto& change = memory.plan_change;
  if (!change || change->revision != revision) return;
  constexpr auto kForGood = std::numeric_limits<std::int64_t>::max();
  if (change->kind == Kind::kRetune) {
    memory.retune.record.quarantine[change->offer] = kForGood;
  } else if (of_codecs(*change)) {
    memory.compression.coarser.quarantine[change->offer] = kForGood;
  } else if (plan != nullptr) {
    const std::string shares = joined(plan->micro_batches);
    memory.shares.shares.quarantine[shares] = kForGood;
    memory.retune.record.quarantine[shares] = kForGood;  // retune costs all plans again
  }
  memory.plan_change.reset();
}

}  // namespace weir::adaptation
