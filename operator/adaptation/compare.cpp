// SPDX-License-Identifier: Apache-2.0
// Compares the new plan with the plan before on the network of now. A step of the plan before is
// the measured one, converted by the simulator from the network of that time to that of now
// (operator/adaptation/gate/README.md "Outcome").
#include <cmath>

#include "operator/adaptation/tick_parts.h"
#include "operator/facts/measured_times.h"
#include "operator/facts/planning.h"
#include "worker/base/gain.h"

namespace weir::adaptation {
namespace {

using costing::Conditions;
using costing::Evidence;
using gate::Kind;

constexpr int kLeastBefore = 4;          // steps of the plan before
constexpr int kMostAfter = 40;           // steps of the new plan until it is judged in any case
constexpr double kSteady = 0.01;         // standard error of the new plan's mean step
constexpr double kClearlySlower = 0.10;  // a retry that is slower by this part ends early
// Part of a conversion between two networks that may be wrong, as logarithms.
constexpr double kConversionError = 0.15;

double squared(double value) {
  return value * value;
}

bool enough(const facts::Facts& facts, const Change& change, const Evidence& after) {
  const std::int64_t since = facts.report->step - change.applied_step;
  // It is judged by its steps alone, so that it also ends if Prometheus does not answer.
  if (change.kind == Kind::kRetry) return since >= facts::kOutcomeSteps;
  if (after.steps == 0) return since >= facts::kOutcomeSteps && network_known(facts);
  const bool steady =
      after.steps >= facts::kOutcomeSteps && after.step_error <= kSteady * after.step_seconds;
  return steady || since >= kMostAfter;
}

bool retry_failed(const facts::Facts& facts, const Change& change) {
  return change.kind == Kind::kRetry &&
         facts.report->step >= change.applied_step + repartition::kFailedRetrySteps &&
         change.before.step_seconds > 0 &&
         recent_step_seconds(facts) > (1 + kClearlySlower) * change.before.step_seconds;
}

// Simulated steps: of the plan before on the network of that time and of now, of the new plan. All
// are unknown if nobody has measured some link of a plan.
struct Simulated {
  double old_then = 0, old_now = 0, new_now = 0;
};
Simulated simulated(const facts::Facts& facts, const planner::Model& model,
                    const schedule::Plan& previous, const Evidence& before, const Evidence& after) {
  Conditions then = before.conditions, now = after.conditions;
  costing::complete(then, after.conditions);
  costing::complete(now, before.conditions);
  if (!covers(now, previous) || !covers(now, *facts.plan)) return {};
  return {.old_then = step_under(then, facts, model, previous),
          .old_now = step_under(now, facts, model, previous),
          .new_now = step_under(now, facts, model, *facts.plan)};
}

}  // namespace

gate::Tier tier_of(Kind kind) {
  if (kind == Kind::kReplace) return gate::Tier::kReplace;
  const bool ranks = kind == Kind::kRepartition || kind == Kind::kRetry;
  return ranks ? gate::Tier::kRegroup : gate::Tier::kRetune;
}

std::optional<gate::Measured> compare(const facts::Facts& facts, const Change& change,
                                      const gate::Calibration& calibration) {
  const bool failed = retry_failed(facts, change);
  if (!failed && facts.report->step < change.applied_step + facts::kOutcomeSteps) {
    return std::nullopt;
  }
  std::string why_not;
  const auto profile = model_of(facts, why_not);
  const planner::Model* model = profile ? &*profile : nullptr;
  Evidence after = costing::evidence_of(facts, model, *facts.plan);
  if (!failed && !enough(facts, change, after)) return std::nullopt;
  if (after.steps < kLeastBefore) {
    after = costing::estimated(facts, model, recent_step_seconds(facts), true);
  }
  Evidence before;
  if (change.previous) before = costing::evidence_of(facts, model, *change.previous);
  if (before.steps < kLeastBefore) before = change.before;
  // Estimates of links of sums are means over other steps than B's. So they count only where
  // nothing newer is known: with other ranks.
  before.conditions.sum_links.clear();
  if (change.previous && !repartition::same_ranks(*change.previous, *facts.plan)) {
    before.conditions.sum_links = change.before.conditions.sum_links;
  }

  gate::Measured measured{.after_seconds = after.step_seconds,
                          .before_steps = before.steps,
                          .after_steps = after.steps,
                          .predicted_gain = change.predicted_gain,
                          .predicted_now = {},
                          .interval_now = {},
                          .can_return = change.can_return && change.previous.has_value()};
  if (after.step_seconds <= 0) return measured;  // nothing can be said
  Simulated steps;
  if (model != nullptr && change.previous && change.kind != Kind::kRetry) {
    steps = simulated(facts, *model, *change.previous, before, after);
  }
  const bool known = steps.old_now > 0 && steps.new_now > 0;
  const gate::Tier tier = tier_of(change.kind);
  if (known) {
    measured.predicted_now = throughput_gain(steps.old_now, steps.new_now);
    measured.interval_now = calibration.around(*measured.predicted_now, tier);
  }
  double variance = squared(after.step_error / after.step_seconds);
  if (before.steps < kLeastBefore && known) {
    measured.restated = true;
    measured.before_seconds = after.step_seconds * steps.old_now / steps.new_now;
    variance += squared(calibration.error(tier));
  } else if (before.step_seconds > 0) {
    const double conversion = known && steps.old_then > 0 ? steps.old_now / steps.old_then : 1;
    measured.before_seconds = before.step_seconds * conversion;
    variance += squared(before.step_error / before.step_seconds) +
                squared(kConversionError * std::log(conversion));
  }
  measured.error = std::sqrt(variance);
  return measured;
}

}  // namespace weir::adaptation
