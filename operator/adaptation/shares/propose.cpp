// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/shares/propose.h"

#include <algorithm>

#include "operator/adaptation/shares/step_times.h"
#include "operator/facts/measured_times.h"
#include "worker/base/text.h"

namespace weir::shares {
namespace {

constexpr double kLeastCost = 0.01;  // of throughput, of a straggler
constexpr std::int64_t kStragglerSteps =
    16;                             // in a row (operator/adaptation/shares/README.md "Shares")
constexpr int kUsualStaleness = 6;  // the CRD's default counts as unset

Spec sync_spec(const api::JobSpec& spec) {
  Spec out;
  out.mode = spec.sync_mode == api::SyncMode::kAuto      ? Allowed::kAuto
             : spec.sync_mode == api::SyncMode::kPartial ? Allowed::kPartial
                                                         : Allowed::kExact;
  if (spec.sync_max_staleness != kUsualStaleness) out.max_staleness = spec.sync_max_staleness;
  out.group_size_max = spec.sync_group_size_max;
  out.rebalance = spec.sync_rebalance;
  return out;
}

schedule::SyncPolicy plan_policy(const Policy& policy) {
  const auto& groups = policy.groups;
  return {policy.mode == Mode::kPartial ? schedule::SyncMode::kPartial : schedule::SyncMode::kExact,
          groups.group_size_min,
          groups.group_size_max,
          groups.max_staleness,
          groups.grace_window_percent,
          groups.connect_every};
}

Policy policy_of(const schedule::SyncPolicy& sync) {
  return {sync.mode == schedule::SyncMode::kPartial ? Mode::kPartial : Mode::kExact,
          {sync.group_size_min, sync.group_size_max, sync.max_staleness, sync.grace_window_percent,
           sync.connect_every}};
}

// asked: weir.dev/replan waits for nothing but the outcome of the last change.
Tier tier_of(const api::TierSpec& spec, const gate::Clock& clock, bool asked) {
  Tier tier{spec.enabled,
            rules(spec.min_gain_percent / 100.0, std::chrono::seconds(spec.cooldown_seconds)),
            clock};
  if (asked) {
    tier.rules.cooldown = std::chrono::seconds(0);
    tier.rules.steps_between = 0;
  }
  return tier;
}

Input policy_input(const facts::Facts& facts, const Moments& moments, bool asked) {
  const auto& plan = *facts.plan;
  const auto& adaptation = facts.spec.adaptation;
  Input input;
  input.spec = sync_spec(facts.spec);
  input.adaptation = adaptation.mode == api::AdaptationMode::kOff       ? Adaptation::kOff
                     : adaptation.mode == api::AdaptationMode::kObserve ? Adaptation::kObserve
                                                                        : Adaptation::kAuto;
  input.retune = tier_of(adaptation.retune, moments.retune, asked);
  input.regroup = tier_of(adaptation.regroup, moments.regroup, asked);
  input.moment = moments.moment;
  input.current = policy_of(plan.sync);
  input.shares = plan.micro_batches;
  input.stages = plan.stage_count();
  input.least_share = plan.schedule.k;
  for (const int cap : plan.schedule.caps) input.least_share = std::max(input.least_share, cap);
  if (plan.schedule.split) {
    for (const int held : plan.schedule.split->held)
      input.least_share = std::max(input.least_share, held);
  }
  input.step_seconds = recent_step_seconds(facts);
  input.replicas = replicas_measured(facts);
  return input;
}

gate::Proposal proposal_of(const facts::Facts& facts, const Decision& decision) {
  schedule::Plan plan = *facts.plan;
  if (decision.shares) plan.micro_batches = *decision.shares;
  if (decision.policy) plan.sync = plan_policy(*decision.policy);
  plan.state = schedule::StateMove::kKeep;
  plan.predicted_step_seconds = decision.step_seconds;
  return {
      .kind = decision.by_spec ? gate::Kind::kSpec : gate::Kind::kShares,
      .trigger = decision.by_spec ? schedule::Trigger::kManual : schedule::Trigger::kRetune,
      .offer = {.name = decision.shares ? joined(*decision.shares) : name(decision.policy->mode)},
      .what = {},
      .text = decision.reason,
      .gain = decision.gain,
      .change = std::move(plan),
      .judged = !decision.by_spec && !decision.returns_to_even};
}

}  // namespace

schedule::SyncPolicy first_sync(const api::JobSpec& spec, int replicas) {
  return plan_policy(first_policy(sync_spec(spec), replicas));
}

std::optional<gate::Proposal> follow_spec(const facts::Facts& facts, const State& state) {
  if (facts.plan->replica_count() < 2) return std::nullopt;
  auto input = policy_input(facts, {}, false);
  input.replicas = {};  // the spec's demands need no measurements
  const auto decided = decide(input, state);
  if (!decided.decision.by_spec) return std::nullopt;
  return proposal_of(facts, decided.decision);
}

std::optional<gate::Proposal> propose(const facts::Facts& facts, const Moments& moments, bool asked,
                                      State& state) {
  if (facts.plan->replica_count() < 2) return std::nullopt;
  auto decided = decide(policy_input(facts, moments, asked), state);
  state = std::move(decided.state);
  if (!decided.decision.shares && !decided.decision.policy) return std::nullopt;
  return proposal_of(facts, decided.decision);
}

std::optional<std::string> straggler(const facts::Facts& facts) {
  if (!replicas_measured(facts).fresh) return std::nullopt;
  const auto window = newest(replicas_measured(facts).intervals, kStragglerSteps);
  if (window.empty()) return std::nullopt;
  const auto found = uneven(window);  // a slow replica comes before a fast one
  if (!found || found->seconds <= found->others) return std::nullopt;
  // Exact replicas wait for the slow one; of those that average, it alone does less.
  const double less = 1 - found->others / found->seconds;
  const double cost = schedule::averages(*facts.plan) ? less / facts.plan->replica_count() : less;
  if (cost < kLeastCost) return std::nullopt;
  return "replica " + std::to_string(found->replica) + " takes " + number(found->seconds, 2) +
         " s a step, median of the others " + number(found->others, 2) + " s for " +
         std::to_string(kStragglerSteps) + " steps, shares " + joined(facts.plan->micro_batches);
}

}  // namespace weir::shares
