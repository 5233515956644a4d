// SPDX-License-Identifier: Apache-2.0
// Judges the outcome of a retuning (operator/tuner/README.md "Outcome").
#include "operator/tuner/rules.h"

namespace weir::tuner {

Judged judge(const Outcome& outcome, const schedule::Schedule& judged, std::int64_t step,
             const Settings& settings, const State& state) {
  Judged result{.verdict = Verdict::kKeep, .measured_gain = 0, .state = state};
  if (outcome.before_seconds <= 0 || outcome.after_seconds <= 0) return result;
  result.measured_gain = throughput_gain(outcome.before_seconds, outcome.after_seconds);
  // If rates have changed, the plan before would have another time now, too.
  if (!outcome.rates_unchanged) return result;

  result.verdict = verdict_of(outcome);
  if (result.verdict == Verdict::kRollback) {
    result.state.quarantine[describe(judged)] = step + kQuarantineSteps;
    result.state.last_change_step = step;  // a rollback is a change, too
    result.state.wins_in_row = 0;
    result.state.wanted.clear();
  }
  result.state.cooldown = next_cooldown(result.verdict, settings.cooldown, state.cooldown);
  return result;
}

}  // namespace weir::tuner
