// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/retune/tune.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "operator/adaptation/retune/candidates.h"
#include "operator/adaptation/retune/memory_alarm.h"
#include "worker/base/gain.h"
#include "worker/base/units.h"
#include "worker/schedule/families.h"

namespace weir::retune {
namespace {

constexpr double kTie = 1.005;             // operator/adaptation/retune/README.md "Decision"
constexpr double kMovedRate = 0.10;        // operator/adaptation/retune/README.md "Decision"
constexpr double kCorrectionWeight = 0.2;  // operator/adaptation/costing/README.md "Cost"
constexpr std::size_t kNewestScrapes = 4;  // scrapes whose mean tells whether a rate is steady
constexpr double kLeastCorrection = 0.8, kMostCorrection = 1.25;

template <class... Numbers>
std::string text(const char* format, Numbers... numbers) {
  std::array<char, 200> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, numbers...);
  return buffer.data();
}
std::string percent(double fraction) {
  return text("%.1f %%", 100 * fraction);
}
std::string seconds(double value) {
  return text("%.3f s", value);
}

// Why there is no order but the present one; "" = there is.
std::string fixed_order(const Input& input) {
  if (!schedule::rules_of(input.settings.family).tuned) {
    return std::string("schedule.type is ") + schedule::name(input.settings.family) +
           ": its order is fixed";
  }
  return input.settings.fixed_caps.empty() ? "" : "schedule.inFlightCaps are fixed";
}

// Why no order can be costed; "" = it can.
std::string nothing_to_cost(const Input& input) {
  if (input.current.caps.size() != input.stages.size() ||
      input.boundary_bytes.size() + 1 != input.stages.size()) {
    return "plan and profile do not agree on the number of stages";
  }
  if (input.stages.size() < 2) return "one stage has no link";
  return {};
}

// Text about the longest transfer: "link 1-2 forward takes 24.2 ms a micro-batch at 40 Mbit/s".
std::string longest_transfer(const costing::LinkView& view) {
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
  return "link " + costing::link_name(view.links[longest]) + text(" takes %.1f ms", 1e3 * most) +
         text(" a micro-batch at %.0f Mbit/s", to_megabits({view.mean_rate[longest]}));
}

bool rates_moved(const costing::LinkView& view,
                 const std::map<estimator::LinkKey, double>& before) {
  for (std::size_t i = 0; i < view.links.size(); ++i) {
    const auto found = before.find(view.links[i]);
    if (found == before.end()) return true;
    if (std::abs(view.mean_rate[i] - found->second) > kMovedRate * found->second) return true;
  }
  return false;
}

// All inputs of a costing except the rates, as a text that changes if they do. Stage times count in
// steps of 10 %, the exposed sync in twentieths of a step.
std::string inputs_text(const Input& input, const State& state) {
  const auto step = [](std::chrono::nanoseconds time) {
    return std::lround(std::log(std::max(1e-9, to_seconds(time))) / std::log(1 + kMovedRate));
  };
  std::string result =
      costing::describe(input.current) + " M" + std::to_string(input.micro_batches);
  if (input.apart) result += " apart";
  if (input.replicas.size() > 1 && input.measured_step_seconds > 0) {
    result += text(" s%ld", std::lround(20 * input.sync_seconds / input.measured_step_seconds));
  }
  for (const schedule::StageTime& stage : input.stages) {
    result += text(" %ld/%ld", step(stage.forward), step(stage.backward));
  }
  for (const Replica& replica : input.replicas) {
    if (input.replicas.size() == 1) break;
    result += text(" r%d", replica.micro_batches);
    for (const schedule::StageTime& stage : replica.stages)
      result += text(" %ld/%ld", step(stage.forward), step(stage.backward));
  }
  for (const std::int64_t bytes : input.boundary_bytes) result += " b" + std::to_string(bytes);
  for (const int cap : input.cap_max) result += " c" + std::to_string(cap);
  for (const Size& size : input.other_sizes) {
    result += text(" mb%d/%d", size.micro_batch_size, size.micro_batches);
    for (const int cap : size.cap_max) result += " c" + std::to_string(cap);
  }
  for (const int samples : state.guarded_samples) result += " g" + std::to_string(samples);
  for (const auto& [plan, step_back] : state.record.quarantine) result += " without " + plan;
  const Settings& settings = input.settings;
  if (settings.splits) result += " split";
  for (const costing::Room& room : input.rooms) {
    if (settings.splits) result += text(" m%d", room.most);
  }
  return result + text(" k%d-%d %d %d %g", settings.k_min, settings.k_max,
                       static_cast<int>(settings.k_fixed), static_cast<int>(settings.dispatch),
                       settings.rules.least_gain);
}

// Whether the newest rates are like those of all V. Measured steps are recent, while predicted ones
// are a mean over V, so they can be compared only then.
bool steady(const costing::LinkView& view) {
  const std::size_t all = view.vectors.size(), newest = std::min(kNewestScrapes, all);
  for (std::size_t link = 0; link < view.links.size(); ++link) {
    double mean = 0, now = 0;
    for (std::size_t i = 0; i < all; ++i) {
      mean += view.vectors[i][link] / static_cast<double>(all);
      if (i + newest >= all) now += view.vectors[i][link] / static_cast<double>(newest);
    }
    if (std::abs(now - mean) > kMovedRate * mean) return false;
  }
  return true;
}

void update_correction(const Input& input, const costing::LinkView& view, double predicted,
                       State& state) {
  // Shortly after a change, the measured mean contains steps of the plan before.
  const bool settled = input.step - state.last_change_step >= input.settings.rules.steps_between;
  if (!settled || input.measured_step_seconds <= 0 || predicted <= 0 || !steady(view)) return;
  const int size = input.current.micro_batch_size;
  double correction = correction_of(state.cost, size, size);
  correction += kCorrectionWeight * (input.measured_step_seconds / predicted - correction);
  state.cost.correction[size] = std::clamp(correction, kLeastCorrection, kMostCorrection);
}

double least_gain(const Input& input, const schedule::Schedule& schedule) {
  const Settings& settings = input.settings;
  if (schedule.micro_batch_size == input.current.micro_batch_size) return settings.rules.least_gain;
  return std::max(settings.rules.least_gain, settings.min_gain_size);
}

// The winner among the plans that `counts` admits, or null. The least cost wins; within 0.5 % the
// least time with slower links (reserve); within 0.5 % of that the fewest samples in flight; then
// the current plan, which comes first.
template <class Counts>
const Costed* best_of(const std::vector<Costed>& costed, const Counts& counts) {
  std::vector<const Costed*> left;
  for (const Costed& candidate : costed) {
    if (counts(candidate)) left.push_back(&candidate);
  }
  for (const auto measure : {&Costed::seconds, &Costed::reserve}) {
    double least = std::numeric_limits<double>::infinity();
    for (const Costed* candidate : left) least = std::min(least, candidate->*measure);
    std::erase_if(left,
                  [&](const Costed* candidate) { return candidate->*measure > least * kTie; });
  }
  const auto fewest =
      std::min_element(left.begin(), left.end(), [](const Costed* a, const Costed* b) {
        return in_flight(a->schedule) < in_flight(b->schedule);
      });
  return fewest == left.end() ? nullptr : *fewest;
}

// How far the measured step lies from the mean rates towards links that are twice as slow, 0 ..
// 1/2. Counters average over seconds, so V lacks bursts that are shorter, and the current plan
// takes longer than predicted. 0 = it takes as long as predicted, or slower links would hardly
// change it.
double hidden_bursts(double correction, double current_seconds, double reserve) {
  constexpr double kTells = 1.03;  // least ratio of reserve and predicted time
  constexpr double kSure = 1.01;   // least ratio of measured and predicted time
  constexpr double kMost = 0.5;
  const double predicted = current_seconds / correction;
  if (correction <= kSure || reserve / correction <= kTells * predicted) return 0;
  return std::min(kMost,
                  (current_seconds - kSure * predicted) / (reserve / correction - predicted));
}

std::vector<Costed> cost_all(const Input& input, const costing::LinkView& view, const State& state,
                             double current_seconds, costing::Coster& coster) {
  const std::vector<Size> sizes = sizes_of(input);
  const int current_size = sizes.front().micro_batch_size;
  std::vector<Candidate> plans{{.schedule = input.current}};
  if (fixed_order(input).empty()) plans = candidates(input, state, view, sizes);
  const auto kept_out = [&](const Candidate& plan) {
    return !same_order(plan.schedule, input.current) &&
           state.record.quarantine.contains(costing::describe(plan.schedule));
  };
  std::erase_if(plans, kept_out);
  if (const costing::Effort effort = effort_of(view, sizes.front()); !effort.all) {
    keep_promising(plans, view, sizes, effort.plans);
  }
  drop_dominated(plans, view, sizes, state, coster, false);
  if (fixed_order(input).empty()) add_splits(plans, input, state, view, sizes);
  std::erase_if(plans, kept_out);
  drop_dominated(plans, view, sizes, state, coster, true);
  // All plans are costed at the same point between the mean and slower links, where a plan that
  // hides transfers better loses less. The rest of the difference is equal for all plans.
  const double correction_now = correction_of(state.cost, current_size, current_size);
  const double hidden = hidden_bursts(correction_now, current_seconds, plans.front().reserve);
  const auto at_point = [&](double seconds, double reserve) {
    return seconds + hidden * std::max(0.0, reserve - seconds);
  };
  const double common = current_seconds / at_point(current_seconds / correction_now,
                                                   plans.front().reserve / correction_now);
  std::vector<Costed> costed;
  for (Candidate& plan : plans) {
    schedule::Schedule& schedule = plan.schedule;
    const std::size_t size = plan.size;
    const double reserve = plan.reserve;
    double seconds = current_seconds;
    if (!same_order(schedule, input.current)) {
      const double correction = correction_of(state.cost, schedule.micro_batch_size, current_size);
      const double predicted = coster.mean_step(schedule, sizes[size]);
      const bool own = schedule.micro_batch_size != current_size &&
                       state.cost.correction.contains(schedule.micro_batch_size);
      seconds = hidden > 0 && !own ? common * at_point(predicted, reserve / correction)
                                   : correction * predicted;
    }
    std::string name = costing::describe(schedule);
    costed.push_back({.schedule = std::move(schedule),
                      .seconds = seconds,
                      .text = std::move(name),
                      .micro_batches = sizes[size].micro_batches,
                      .reserve = reserve});
  }
  return costed;
}

void change_to(const Costed& plan, const Input& input, Decision& decision, State& state) {
  decision.change = plan;
  gate::nothing_offered(state.record);
  state.clock.last_change = input.now;
  state.last_change_step = input.step;
}

// Fills decision and state from the costs (operator/adaptation/retune/README.md "Decision").
void decide(const Input& input, const costing::LinkView& view, Decision& decision, State& state) {
  const double current = decision.current_seconds;
  const auto all = [](const Costed&) { return true; };
  const auto gain_of = [&](const Costed& plan) {
    return current > 0 ? throughput_gain(current, plan.seconds) : 0;
  };
  // A change of size may have to gain more. If it does not, the best plan of the current size wins.
  const auto worth_it = [&](const Costed& plan) {
    return !same_order(plan.schedule, input.current) &&
           gain_of(plan) > least_gain(input, plan.schedule);
  };
  const Costed* winner = best_of(decision.candidates, worth_it);
  const Costed& best = winner != nullptr ? *winner : *best_of(decision.candidates, all);
  decision.gain = gain_of(best);
  const std::string now = costing::describe(input.current) + ": ";
  if (same_order(best.schedule, input.current)) {
    gate::nothing_offered(state.record);
    decision.reason = now + seconds(current) + " predicted, no candidate is better";
    return;
  }
  gate::Rules rules = input.settings.rules;
  rules.least_gain = least_gain(input, best.schedule);
  const gate::Offer offer{.name = best.text, .now_seconds = current, .then_seconds = best.seconds};
  const gate::Moment moment{
      .now = input.now, .step = input.step, .last_change_step = state.last_change_step};
  auto weighed = gate::weigh(offer, moment, rules, state.clock, state.record);
  state.record = std::move(weighed.record);
  decision.best = best.text;
  decision.answer = weighed.answer;
  decision.reason = now + weighed.reason + " (" + best.text + "); " + longest_transfer(view);
  if (weighed.act) change_to(Costed(best), input, decision, state);
}

// Why it is too soon for an evaluation; "" = it is not. A second evaluation must see new data.
std::string too_soon(const Input& input, const State& state) {
  const std::int64_t steps = input.step - state.evaluated_step;
  const Settings& settings = input.settings;
  if (steps < settings.min_steps_evaluated) {
    return text("%ld steps since the last evaluation", static_cast<long>(steps)) +
           text(", at least %d", settings.min_steps_evaluated);
  }
  if (!state.evaluated_scrape) return {};
  const auto fresh = std::count_if(input.rates.times.begin(), input.rates.times.end(),
                                   [&](SystemTime time) { return time > *state.evaluated_scrape; });
  if (fresh >= settings.min_scrapes_evaluated) return {};
  return text("%ld scrapes since the last evaluation", static_cast<long>(fresh)) +
         text(", at least %d", settings.min_scrapes_evaluated);
}

// Whether nothing has changed since the last costing, so that its result can be used again.
bool nothing_moved(const costing::LinkView& view, const State& state, const std::string& inputs) {
  return state.record.wins_in_row == 0 && inputs == state.costed_inputs &&
         !rates_moved(view, state.costed_rates);
}

void evaluate(const Input& input, const costing::LinkView& view, Decision& decision, State& state) {
  costing::Coster coster(view, bins_of(view, effort_of(view, sizes_of(input).front()).bins));
  decision.escalation.link_bound = bound_links(input, view);
  sum_loss(input, view, coster, state.cost);
  decision.escalation.loss_seconds = state.cost.loss_seconds;

  const std::string inputs = inputs_text(input, state);
  const bool quiet = nothing_moved(view, state, inputs);
  if (!quiet) state.costed_step = coster.mean_step(input.current, sizes_of(input).front());
  update_correction(input, view, state.costed_step, state);
  const int size = input.current.micro_batch_size;
  decision.current_seconds = correction_of(state.cost, size, size) * state.costed_step;
  if (quiet) {
    decision.reason = costing::describe(input.current) + ": " + seconds(decision.current_seconds) +
                      " predicted, no link rate moved by more than " + percent(kMovedRate) +
                      " since the last evaluation";
  } else {
    state.costed_inputs = inputs;
    state.costed_rates.clear();
    for (std::size_t i = 0; i < view.links.size(); ++i) {
      state.costed_rates[view.links[i]] = view.mean_rate[i];
    }
    decision.candidates = cost_all(input, view, state, decision.current_seconds, coster);
    decide(input, view, decision, state);
    std::stable_sort(decision.candidates.begin(), decision.candidates.end(),
                     [](const Costed& a, const Costed& b) { return a.seconds < b.seconds; });
  }
  decision.simulations = coster.simulations();
}

}  // namespace

Tuned tune(const Input& input, const State& before) {
  Tuned tuned{.decision = {}, .state = before};
  Decision& decision = tuned.decision;
  State& state = tuned.state;
  gate::end_quarantine(state.record, input.step);

  const std::string fixed = fixed_order(input);
  decision.reason = nothing_to_cost(input);
  decision.fixed_order = !fixed.empty() || !decision.reason.empty();
  if (!decision.reason.empty()) return tuned;
  // The tiers above need the cost of a fixed order, too.
  const auto lowered = fixed.empty() ? memory_alarm(input, state) : std::nullopt;
  if (lowered) {
    decision.reason = "less than 2 % of a device's memory is free: " + lowered->text;
    decision.memory_guard = true;
    change_to(*lowered, input, decision, state);
    return tuned;
  }
  const costing::LinkView view = view_links(input);
  if (!view.unknown.empty()) {
    decision.reason = "no change: " + view.unknown;
    decision.unknown = view.unknown;
    state.record.wins_in_row = 0;  // this evaluation is no win
    return tuned;
  }

  decision.reason = too_soon(input, state);
  if (!decision.reason.empty()) {
    decision.reason = "waits: " + decision.reason;
    decision.too_soon = true;
    return tuned;
  }
  state.evaluated_step = input.step;
  state.evaluated_scrape = input.rates.times.back();
  evaluate(input, view, decision, state);
  if (!fixed.empty()) decision.reason = fixed + "; " + decision.reason;
  return tuned;
}

}  // namespace weir::retune
