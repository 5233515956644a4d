// SPDX-License-Identifier: Apache-2.0
#include "operator/tuner/gate.h"

#include <algorithm>

#include "operator/tuner/cost.h"
#include "operator/tuner/rules.h"
#include "worker/base/gain.h"

namespace weir::tuner {
namespace {

std::chrono::seconds cooldown_of(const TierSettings& settings, const TierState& state) {
  if (settings.cooldown.count() == 0) return settings.cooldown;  // weir.dev/replan: no wait
  return std::max(settings.cooldown, state.cooldown);
}

// Why an offer that gains enough must wait; "" = it need not.
std::string reason_to_wait(const Offer& offer, const Moment& moment, const TierSettings& settings,
                           const TierState& state) {
  if (state.wins_in_row < kWinsNeeded) return "seen once, needs a second evaluation";
  const std::int64_t steps = moment.step - moment.last_change_step;
  if (steps < settings.min_steps_between) {
    return text("%ld steps since the last change, at least %d", static_cast<long>(steps),
                settings.min_steps_between);
  }
  const std::chrono::seconds cooldown = cooldown_of(settings, state);
  if (const auto left = cooldown_left(moment.now, settings, state); left.count() > 0) {
    return text("cooldown: %ld of %ld s", static_cast<long>((cooldown - left).count()),
                static_cast<long>(cooldown.count()));
  }
  // A change must repay its cost within one cooldown. If weir.dev/replan waives the cooldown, the
  // default one is the horizon.
  const auto horizon = cooldown.count() > 0 ? cooldown : TierSettings{}.cooldown;
  const double saved = static_cast<double>(horizon.count()) *
                       (offer.current_seconds - offer.seconds) / offer.current_seconds;
  if (saved < offer.cost_seconds) {
    return text("its cost of %.1f s is not repaid: %.1f s in %ld s", offer.cost_seconds, saved,
                static_cast<long>(horizon.count()));
  }
  if (cooldown.count() > 0 && moment.loss_seconds < offer.cost_seconds) {
    return text("%.1f s lost since the last action, its cost is %.1f s", moment.loss_seconds,
                offer.cost_seconds);
  }
  return {};
}

}  // namespace

Weighed weigh(const Offer& offer, const Moment& moment, const TierSettings& settings,
              const TierState& before) {
  Weighed result{.act = false, .enough = false, .gain = 0, .reason = {}, .state = before};
  TierState& state = result.state;
  std::erase_if(state.quarantine, [&](const auto& entry) { return moment.step >= entry.second; });
  if (offer.current_seconds <= 0 || offer.seconds <= 0) {
    nothing_offered(state);
    result.reason = "the time of a step is not known";
    return result;
  }
  result.gain = throughput_gain(offer.current_seconds, offer.seconds);
  result.enough = result.gain >= settings.min_gain;
  result.reason = text("%.3f s -> %.3f s predicted (%+.1f %%), ", offer.current_seconds,
                       offer.seconds, 100 * result.gain);
  if (!result.enough) {
    nothing_offered(state);
    result.reason += text("below the least gain of %.1f %%", 100 * settings.min_gain);
    return result;
  }
  const auto out = state.quarantine.find(offer.text);
  if (out != state.quarantine.end()) {
    nothing_offered(state);
    result.enough = false;
    result.reason += "kept out: it was refused, or rolled back less than 100 steps ago";
    return result;
  }
  if (state.wanted != offer.text) state.wins_in_row = 0;  // the last evaluation had another offer
  ++state.wins_in_row;
  state.wanted = offer.text;
  const std::string wait = reason_to_wait(offer, moment, settings, state);
  if (!wait.empty()) {
    result.reason += "waits: " + wait;
    return result;
  }
  result.reason += text("costs %.1f s once", offer.cost_seconds);
  result.act = true;
  nothing_offered(state);
  state.last_change = moment.now;
  return result;
}

std::chrono::seconds cooldown_left(SystemTime now, const TierSettings& settings,
                                   const TierState& state) {
  if (!state.last_change) return std::chrono::seconds(0);
  const auto end = *state.last_change + cooldown_of(settings, state);
  return std::max(std::chrono::seconds(0), std::chrono::ceil<std::chrono::seconds>(end - now));
}

void nothing_offered(TierState& state) {
  state.wins_in_row = 0;
  state.wanted.clear();
}

TierJudged judge(const Outcome& outcome, const std::string& offer, std::int64_t step,
                 const TierSettings& settings, const TierState& state) {
  TierJudged result{.verdict = Verdict::kKeep, .measured_gain = 0, .state = state};
  if (outcome.before_seconds <= 0 || outcome.after_seconds <= 0) return result;
  result.measured_gain = throughput_gain(outcome.before_seconds, outcome.after_seconds);
  result.verdict = verdict_of(outcome);
  // If rates have changed, the plan before would have another time now, too.
  if (result.verdict == Verdict::kRollback && !outcome.rates_unchanged) {
    result.verdict = Verdict::kMissed;
  }
  if (result.verdict == Verdict::kRollback) {
    result.state.quarantine[offer] = step + kQuarantineSteps;
  }
  result.state.cooldown = next_cooldown(result.verdict, settings.cooldown, state.cooldown);
  return result;
}

std::optional<double> predicted_step(const Input& input, const State& state) {
  const LinkView view = view_links(input);
  if (!view.unknown.empty()) return std::nullopt;
  Coster coster(view, bins_of(view, effort_of(view, sizes_of(input).front()).bins));
  const int size = input.current.micro_batch_size;
  return correction_of(state, size, size) *
         coster.mean_step(input.current, sizes_of(input).front());
}

}  // namespace weir::tuner
