// SPDX-License-Identifier: Apache-2.0
// Replicas: their stage and step times for the tuner, and the decisions of operator/groups about
// micro-batch shares (tier retune) and the sync policy (tier regroup).
#include <limits>

#include "operator/adaptation/shares/policy.h"
#include "operator/adaptation/shares/step_times.h"
#include "operator/controller/reconcile/pass.h"
#include "worker/base/units.h"

namespace weir::reconcile {
namespace {

using shares::Adaptation;
using shares::Allowed;
using shares::Mode;

constexpr double kSlower = 1.1;  // times the median of the others
constexpr std::int64_t kStragglerSteps =
    16;                             // in a row (operator/adaptation/shares/README.md "Shares")
constexpr int kUsualStaleness = 6;  // the CRD's default counts as unset

shares::Spec sync_spec(const api::JobSpec& spec) {
  shares::Spec out;
  out.mode = spec.sync_mode == "Auto"      ? Allowed::kAuto
             : spec.sync_mode == "Partial" ? Allowed::kPartial
                                           : Allowed::kExact;
  if (spec.sync_max_staleness != kUsualStaleness) out.max_staleness = spec.sync_max_staleness;
  out.group_size_max = spec.sync_group_size_max;
  out.rebalance = spec.sync_rebalance;
  return out;
}

schedule::SyncPolicy plan_policy(const shares::Policy& policy) {
  const auto& groups = policy.groups;
  return {policy.mode == Mode::kPartial ? schedule::SyncMode::kPartial : schedule::SyncMode::kExact,
          groups.group_size_min,
          groups.group_size_max,
          groups.max_staleness,
          groups.grace_window_percent,
          groups.connect_every};
}

shares::Policy policy_of(const schedule::SyncPolicy& sync) {
  return {sync.mode == schedule::SyncMode::kPartial ? Mode::kPartial : Mode::kExact,
          {sync.group_size_min, sync.group_size_max, sync.max_staleness, sync.grace_window_percent,
           sync.connect_every}};
}

double smoothed(const estimator::ReplicaInterval& interval, int replica) {
  return interval.replicas.at(replica).smoothed;
}

double others_median(const estimator::ReplicaInterval& interval, int replica) {
  std::vector<double> others;
  for (const auto& [other, time] : interval.replicas) {
    if (other != replica) others.push_back(time.smoothed);
  }
  std::sort(others.begin(), others.end());
  const std::size_t middle = others.size() / 2;
  if (others.empty()) return std::numeric_limits<double>::infinity();
  return others.size() % 2 == 1 ? others[middle] : (others[middle - 1] + others[middle]) / 2;
}

// A new leader reads when the tier changed last from status. asked: weir.dev/replan waits for
// nothing but the outcome of the last change.
shares::Tier tier_of(const api::TierSpec& spec, gate::Clock clock, std::optional<Time> last_change,
                     bool asked) {
  gate::resume(clock, last_change, 0);
  shares::Tier tier{
      spec.enabled,
      shares::rules(spec.min_gain_percent / 100.0, std::chrono::seconds(spec.cooldown_seconds)),
      clock};
  if (asked) {
    tier.rules.cooldown = std::chrono::seconds(0);
    tier.rules.steps_between = 0;
  }
  return tier;
}

shares::Input policy_input(const Pass& pass, bool asked) {
  const auto& plan = *pass.plan;
  const auto& adaptation = pass.spec().adaptation;
  shares::Input input;
  input.spec = sync_spec(pass.spec());
  input.adaptation = adaptation.mode == "Off"       ? Adaptation::kOff
                     : adaptation.mode == "Observe" ? Adaptation::kObserve
                                                    : Adaptation::kAuto;
  input.retune = tier_of(adaptation.retune, pass.adaptation.tuner.clock,
                         pass.status.retune_last_change, asked);
  input.regroup = tier_of(adaptation.regroup, pass.adaptation.tiers.regroup_clock,
                          pass.status.regroup_last_change, asked);
  input.moment = {.now = pass.now(),
                  .step = pass.snapshot.report->body.step,
                  .last_change_step = pass.adaptation.tuner.last_change_step,
                  .unjudged = pass.adaptation.pending.has_value()};
  input.current = policy_of(plan.sync);
  input.shares = plan.micro_batches;
  input.stages = plan.stage_count();
  input.least_share = plan.schedule.k;
  for (const int cap : plan.schedule.caps) input.least_share = std::max(input.least_share, cap);
  input.step_seconds = recent_step_seconds(facts_of(pass));
  input.replicas = replicas_measured(facts_of(pass));
  return input;
}

void report_change(Pass& pass, const shares::Decision& decision) {
  if (decision.shares) pass.event("Normal", "PlanRetuned", decision.reason, "Adapt");
  if (decision.policy) pass.event("Normal", "SyncPolicyChanged", decision.reason, "Adapt");
}

// Makes a plan with the decided shares and policy. It is judged after ten steps like other plans.
void apply(Pass& pass, const shares::Decision& decision) {
  schedule::Plan plan = *pass.plan;
  if (decision.shares) plan.micro_batches = *decision.shares;
  if (decision.policy) plan.sync = plan_policy(*decision.policy);
  plan.state = schedule::StateMove::kKeep;
  plan.predicted_step_seconds = decision.step_seconds;
  AdaptationState::Pending pending;
  pending.schedule = pending.previous = plan.schedule;
  pending.previous_micro_batches = pass.plan->micro_batches;
  pending.text = joined(plan.micro_batches);
  if (decision.policy) pending.previous_sync = pass.plan->sync;
  pending.before_seconds = recent_step_seconds(facts_of(pass));
  pending.predicted_gain = decision.gain;
  pending.rates_before = link_rates(facts_of(pass));
  pass.adaptation.pending.reset();
  adopt_plan(pass, std::move(plan),
             decision.by_spec ? schedule::Trigger::kManual : schedule::Trigger::kRetune,
             decision.gain);
  report_change(pass, decision);
  if (decision.by_spec) return;
  pending.revision = static_cast<std::uint32_t>(pass.status.plan.revision);
  if (!decision.returns_to_even) pass.adaptation.pending = std::move(pending);
  auto& tuner = pass.adaptation.tuner;
  tuner.clock.last_change = pass.now();
  tuner.last_change_step = pass.snapshot.report->body.step;
  gate::nothing_offered(tuner.record);
  pass.status.retune_last_change = pass.now();
  if (!decision.policy) return;
  pass.adaptation.tiers.regroup_clock.last_change = pass.now();
  pass.status.regroup_last_change = pass.now();
}

}  // namespace

schedule::SyncPolicy first_sync(const api::JobSpec& spec, int replicas) {
  return plan_policy(shares::first_policy(sync_spec(spec), replicas));
}

bool follow_sync_spec(Pass& pass) {
  if (pass.plan->replica_count() < 2) return false;
  auto input = policy_input(pass, false);
  input.replicas = {};  // the spec's demands need no measurements
  const auto decided = shares::decide(input, pass.adaptation.sync);
  if (!decided.decision.by_spec) return false;
  apply(pass, decided.decision);
  return true;
}

bool rebalance(Pass& pass, bool asked) {
  if (pass.plan->replica_count() < 2) return false;
  auto decided = shares::decide(policy_input(pass, asked), pass.adaptation.sync);
  pass.adaptation.sync = std::move(decided.state);
  const auto& decision = decided.decision;
  if (!decision.shares && !decision.policy) {
    pass.adaptation.last_share_proposal.clear();
    return false;
  }
  if (!decision.propose_only) {
    apply(pass, decision);
    return true;
  }
  const std::string key =
      decision.shares ? joined(*decision.shares) : shares::name(decision.policy->mode);
  if (pass.adaptation.last_share_proposal != key)
    pass.event("Normal", "PlanProposed", decision.reason, "Adapt");
  pass.adaptation.last_share_proposal = key;
  return false;
}

bool changes_shares(const Pass& pass, const AdaptationState::Pending& pending) {
  return pending.previous_sync || (pending.schedule == pending.previous &&
                                   pending.previous_micro_batches != pass.plan->micro_batches);
}

ShareOffer share_offer(Pass& pass, const AdaptationState::Pending& pending) {
  auto& sync = pass.adaptation.sync;
  if (pending.previous_sync) return {shares::name(Mode::kPartial), sync.mode};
  return {joined(pass.plan->micro_batches), sync.shares};
}

std::optional<std::string> straggler(const Pass& pass) {
  if (pass.plan == nullptr || pass.plan->replica_count() < 2 ||
      !replicas_measured(facts_of(pass)).fresh)
    return std::nullopt;
  const auto window = shares::newest(replicas_measured(facts_of(pass)).intervals, kStragglerSteps);
  if (window.empty()) return std::nullopt;
  const estimator::ReplicaInterval& now = window.back();
  int slowest = -1;
  for (const auto& [replica, time] : now.replicas) {
    const bool always = std::all_of(window.begin(), window.end(), [&](const auto& interval) {
      return smoothed(interval, replica) > kSlower * others_median(interval, replica);
    });
    if (always && (slowest < 0 || time.smoothed > smoothed(now, slowest))) slowest = replica;
  }
  if (slowest < 0) return std::nullopt;
  return "replica " + std::to_string(slowest) + " takes " + number(smoothed(now, slowest), 2) +
         " s a step, median of the others " + number(others_median(now, slowest), 2) + " s for " +
         std::to_string(kStragglerSteps) + " steps, shares " + joined(pass.plan->micro_batches);
}

}  // namespace weir::reconcile
