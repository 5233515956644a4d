// SPDX-License-Identifier: Apache-2.0
#include "operator/tuner/tune.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "operator/tuner/candidates.h"
#include "operator/tuner/cost.h"
#include "worker/base/units.h"

namespace weir::tuner {
namespace {

constexpr double kTie = 1.005;        // scheduling.md 5.2
constexpr double kMovedRate = 0.10;   // scheduling.md 5.2
constexpr int kWinsNeeded = 2;        // scheduling.md 5.3
constexpr double kKappaWeight = 0.2;  // scheduling.md 5.2
constexpr double kKappaLeast = 0.8, kKappaMost = 1.25;

template <class... Numbers>
std::string text(const char* format, Numbers... numbers) {
  char buffer[200];
  std::snprintf(buffer, sizeof buffer, format, numbers...);
  return buffer;
}

std::string percent(double fraction) {
  return text("%.1f %%", 100 * fraction);
}
std::string seconds(double value) {
  return text("%.3f s", value);
}

int total_in_flight(const schedule::Schedule& schedule) {
  return std::accumulate(schedule.caps.begin(), schedule.caps.end(), 0);
}

bool same_order(const schedule::Schedule& a, const schedule::Schedule& b) {
  return a.caps == b.caps && a.dispatch == b.dispatch;
}

// Why there is nothing to choose; empty = there is.
std::string nothing_to_tune(const Input& input) {
  if (input.settings.family != schedule::Family::kKfkb) {
    return std::string("schedule.type is ") + schedule::name(input.settings.family) +
           ": its order is fixed";
  }
  if (!input.settings.fixed_caps.empty()) return "schedule.inFlightCaps are fixed";
  if (input.current.caps.size() != input.stages.size() ||
      input.boundary_bytes.size() + 1 != input.stages.size()) {
    return "plan and profile do not agree on the number of stages";
  }
  if (input.stages.size() < 2) return "one stage has no link";
  return {};
}

// "link 1-2 forward takes 24.2 ms a micro-batch at 40 Mbit/s": the longest transfer of all.
std::string longest_transfer(const LinkView& view) {
  std::size_t longest = 0;
  double most = -1;
  for (std::size_t i = 0; i < view.links.size(); ++i) {
    double mean = view.latency[i];
    for (const std::vector<double>& vector : view.vectors) {
      mean += vector[i] / static_cast<double>(view.vectors.size());
    }
    if (mean <= most) continue;
    most = mean;
    longest = i;
  }
  return "link " + link_name(view.links[longest]) + text(" takes %.1f ms", 1e3 * most) +
         text(" a micro-batch at %.0f Mbit/s", to_megabits({view.mean_rate[longest]}));
}

bool rates_moved(const LinkView& view, const std::map<estimator::LinkKey, double>& before) {
  for (std::size_t i = 0; i < view.links.size(); ++i) {
    const auto found = before.find(view.links[i]);
    if (found == before.end()) return true;
    if (std::abs(view.mean_rate[i] - found->second) > kMovedRate * found->second) return true;
  }
  return false;
}

// Everything besides the rates that a costing depends on; stage times in steps of 10 %.
std::string inputs_text(const Input& input, const State& state) {
  const auto step = [](std::chrono::nanoseconds time) {
    return std::lround(std::log(std::max(1e-9, to_seconds(time))) / std::log(1 + kMovedRate));
  };
  std::string result = describe(input.current) + " M" + std::to_string(input.micro_batches);
  for (const schedule::StageTime& stage : input.stages) {
    result += text(" %ld/%ld", step(stage.forward), step(stage.backward));
  }
  for (const std::int64_t bytes : input.boundary_bytes) result += " b" + std::to_string(bytes);
  for (const int cap : input.cap_max) result += " c" + std::to_string(cap);
  for (const auto& [plan, step_back] : state.quarantine) result += " without " + plan;
  const Settings& settings = input.settings;
  return result + text(" k%d-%d %d %d %g", settings.k_min, settings.k_max,
                       static_cast<int>(settings.k_fixed), static_cast<int>(settings.dispatch),
                       settings.min_gain);
}

void correct_kappa(const Input& input, double predicted, State& state) {
  // Steps of the plan before would count as steps of this one.
  const bool settled = input.step - state.last_change_step >= input.settings.min_steps_between;
  if (!settled || input.measured_step_seconds <= 0 || predicted <= 0) return;
  state.kappa += kKappaWeight * (input.measured_step_seconds / predicted - state.kappa);
  state.kappa = std::clamp(state.kappa, kKappaLeast, kKappaMost);
}

// The winner: least cost; within 0.5 % least in flight, then the current plan, which comes first.
const Costed& best_of(const std::vector<Costed>& costed) {
  double least = costed.front().seconds;
  for (const Costed& candidate : costed) least = std::min(least, candidate.seconds);
  const Costed* best = nullptr;
  for (const Costed& candidate : costed) {
    if (candidate.seconds > least * kTie) continue;
    if (best == nullptr || total_in_flight(candidate.schedule) < total_in_flight(best->schedule)) {
      best = &candidate;
    }
  }
  return *best;
}

std::chrono::seconds cooldown_of(const Settings& settings, const State& state) {
  if (settings.cooldown.count() == 0) return settings.cooldown;  // asked for: never wait
  return std::max(settings.cooldown, state.cooldown);
}

// Why a wanted change must wait; empty = it need not.
std::string reason_to_wait(const Input& input, const State& state) {
  if (state.wins_in_row < kWinsNeeded) return "seen once, needs a second evaluation";
  const std::int64_t steps = input.step - state.last_change_step;
  if (steps < input.settings.min_steps_between) {
    return text("%ld steps since the last change", static_cast<long>(steps)) +
           text(", at least %d", input.settings.min_steps_between);
  }
  const std::chrono::seconds cooldown = cooldown_of(input.settings, state);
  if (state.last_change && input.now - *state.last_change < cooldown) {
    const auto since =
        std::chrono::duration_cast<std::chrono::seconds>(input.now - *state.last_change);
    return text("cooldown: %ld of %ld s", static_cast<long>(since.count()),
                static_cast<long>(cooldown.count()));
  }
  return {};
}

std::vector<Costed> cost_all(const Input& input, const LinkView& view, const std::vector<Bin>& bins,
                             double current_seconds, const State& state) {
  std::vector<Costed> costed;
  for (schedule::Schedule& schedule : candidates(input, view)) {
    const bool current = same_order(schedule, input.current);
    std::string name = describe(schedule);
    if (!current && state.quarantine.contains(name)) continue;
    const double cost =
        current ? current_seconds : state.kappa * mean_step(schedule, input, view, bins);
    costed.push_back({std::move(schedule), cost, std::move(name)});
  }
  return costed;
}

// 5.3: fills decision and state from the costs.
void decide(const Input& input, const LinkView& view, Decision& decision, State& state) {
  const double current = decision.current_seconds;
  const Costed best = best_of(decision.candidates);
  decision.gain = current > 0 ? 1 - best.seconds / current : 0;
  const std::string now = describe(input.current) + ": " + seconds(current) + " predicted";
  if (same_order(best.schedule, input.current)) {
    state.wins_in_row = 0;
    state.wanted.clear();
    decision.reason = now + ", no candidate is better";
    return;
  }
  const std::string instead =
      best.text + " would take " + seconds(best.seconds) + " (" + percent(decision.gain) + " less)";
  if (!(best.seconds * (1 + input.settings.min_gain) < current)) {
    state.wins_in_row = 0;
    state.wanted.clear();
    decision.reason =
        now + "; " + instead + ", below the least gain of " + percent(input.settings.min_gain);
    return;
  }
  ++state.wins_in_row;
  state.wanted = best.text;
  const std::string wait = reason_to_wait(input, state);
  decision.reason = now + "; " + instead + "; " + longest_transfer(view);
  if (!wait.empty()) {
    decision.reason += "; waits: " + wait;
    return;
  }
  decision.change = best;
  state.wins_in_row = 0;
  state.wanted.clear();
  state.last_change = input.now;
  state.last_change_step = input.step;
}

}  // namespace

std::string describe(const schedule::Schedule& schedule) {
  std::string result = "k=" + std::to_string(schedule::k_of_caps(schedule.caps)) + " caps ";
  for (std::size_t s = 0; s < schedule.caps.size(); ++s) {
    result += (s == 0 ? "" : ",") + std::to_string(schedule.caps[s]);
  }
  return result + " " + schedule::name(schedule.dispatch);
}

Tuned tune(const Input& input, const State& before) {
  Tuned tuned{.decision = {}, .state = before};
  Decision& decision = tuned.decision;
  State& state = tuned.state;
  std::erase_if(state.quarantine, [&](const auto& entry) { return input.step >= entry.second; });

  decision.reason = nothing_to_tune(input);
  if (!decision.reason.empty()) return tuned;
  const LinkView view = view_links(input);
  if (!view.unknown.empty()) {
    decision.reason = "no change: " + view.unknown;
    state.wins_in_row = 0;  // "in a row" is over
    return tuned;
  }

  const std::vector<Bin> bins = bins_of(view);
  const double predicted = mean_step(input.current, input, view, bins);
  correct_kappa(input, predicted, state);
  decision.current_seconds = state.kappa * predicted;
  const std::string inputs = inputs_text(input, state);
  if (state.wins_in_row == 0 && inputs == state.costed_inputs &&
      !rates_moved(view, state.costed_rates)) {
    decision.reason = describe(input.current) + ": " + seconds(decision.current_seconds) +
                      " predicted, no link rate moved by more than " + percent(kMovedRate) +
                      " since the last evaluation";
    return tuned;
  }
  state.costed_inputs = inputs;
  state.costed_rates.clear();
  for (std::size_t i = 0; i < view.links.size(); ++i) {
    state.costed_rates[view.links[i]] = view.mean_rate[i];
  }
  decision.candidates = cost_all(input, view, bins, decision.current_seconds, state);
  decide(input, view, decision, state);
  std::stable_sort(decision.candidates.begin(), decision.candidates.end(),
                   [](const Costed& a, const Costed& b) { return a.seconds < b.seconds; });
  return tuned;
}

}  // namespace weir::tuner
