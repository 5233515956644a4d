// SPDX-License-Identifier: Apache-2.0
// Did a change do what was predicted? (scheduling.md 5.3, operator.md 9)
#include <algorithm>

#include "operator/tuner/tune.h"
#include "worker/base/gain.h"

namespace weir::tuner {
namespace {

constexpr double kSlower = 0.03;                // rolled back beyond it
constexpr std::int64_t kQuarantineSteps = 100;  // scheduling.md 5.3
constexpr double kMissedPart = 1.0 / 3;         // of the time that was to be saved
constexpr std::chrono::seconds kMostCooldown{3600};

}  // namespace

Judged judge(const Outcome& outcome, const schedule::Schedule& judged, std::int64_t step,
             const Settings& settings, const State& state) {
  Judged result{.verdict = Verdict::kKeep, .measured_gain = 0, .state = state};
  if (outcome.before_seconds <= 0 || outcome.after_seconds <= 0) return result;
  result.measured_gain = throughput_gain(outcome.before_seconds, outcome.after_seconds);
  // With other rates, the plan before would have another time by now too.
  if (!outcome.rates_unchanged) return result;

  const std::chrono::seconds cooldown = std::max(settings.cooldown, state.cooldown);
  if (outcome.after_seconds > outcome.before_seconds * (1 + kSlower)) {
    result.verdict = Verdict::kRollBack;
    result.state.quarantine[describe(judged)] = step + kQuarantineSteps;
    result.state.last_change_step = step;  // the way back is a change too
    result.state.wins_in_row = 0;
    result.state.wanted.clear();
  } else if (saved_part(result.measured_gain) < saved_part(outcome.predicted_gain) * kMissedPart) {
    result.verdict = Verdict::kMissed;
  }
  if (result.verdict == Verdict::kKeep) {
    result.state.cooldown = std::max(settings.cooldown, cooldown / 2);
  } else {
    result.state.cooldown = std::min(kMostCooldown, 2 * cooldown);
  }
  return result;
}

}  // namespace weir::tuner
