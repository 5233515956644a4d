// SPDX-License-Identifier: Apache-2.0
#include "operator/explain/causes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "worker/base/text.h"

namespace weir::explain {
namespace {

using costing::Conditions;

constexpr double kNamed = 0.02, kStays = 0.01;  // parts of a step
constexpr double kCertainErrors = 2;            // standard errors of the mean step
constexpr double kClearlyDearer = 1.2;
constexpr std::size_t kMostCosted = 8;  // deviations, each a simulated step or two

// The one that costs most if the others are as usual.
std::size_t dearest_alone(const CauseInput& input, const StepOf& step_of) {
  std::size_t dearest = 0;
  double most = -1;
  for (std::size_t i = 0; i < input.deviations.size(); ++i) {
    Conditions others = input.now;
    for (std::size_t j = 0; j < input.deviations.size(); ++j) {
      if (j != i) others = without(std::move(others), input.deviations[j]);
    }
    const double step = step_of(others);
    if (step <= most) continue;
    most = step;
    dearest = i;
  }
  return dearest;
}

std::optional<Cause> schedule_itself(const CauseInput& input) {
  const double least = std::max(kNamed * input.step_seconds, kCertainErrors * input.step_error);
  const bool order = input.order_seconds >= input.fill_seconds;
  const double seconds = order ? input.order_seconds : input.fill_seconds;
  if (seconds < least) return std::nullopt;
  return Cause{.kind = order ? Kind::kOrder : Kind::kFill,
               .place = {},
               .text = order ? "the schedule itself: another order of the same ops could hide more"
                             : "the schedule itself: filling and draining the pipeline, which no "
                               "order of " +
                                   std::to_string(input.micro_batches) + " micro-batches avoids",
               .seconds = seconds};
}

}  // namespace

Causes causes_of(const CauseInput& input, const StepOf& step_of) {
  Causes causes;
  const double now = step_of(input.now);
  if (now <= 0 || input.step_seconds <= 0) return causes;
  auto& all = causes.also;
  Conditions usual = input.now;
  for (const Deviation& deviation : input.deviations) {
    usual = without(std::move(usual), deviation);
    if (all.size() == kMostCosted) continue;
    double seconds = deviation.measured;
    if (seconds <= 0) {
      const double step = step_of(without(input.now, deviation));
      seconds = step > 0 ? std::max(0.0, now - step) : 0;
    }
    // Spread evenly, they would hide in the waits of the rank.
    if (deviation.at_random > seconds) {
      seconds = std::min(seconds + std::max(0.0, input.unexplained_seconds), deviation.at_random);
    }
    all.push_back({.kind = deviation.kind,
                   .place = deviation.place,
                   .text = deviation.text,
                   .seconds = seconds});
  }
  const double certain = kCertainErrors * input.step_error;
  const double least = std::max(kNamed * input.step_seconds, certain);
  std::size_t main = all.size();  // none
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool dearer = main == all.size() || all[i].seconds > all[main].seconds;
    if (dearer && all[i].seconds >= least) main = i;
  }
  for (std::size_t i = 0; i < all.size() && input.before; ++i) {
    const bool same = all[i].kind == input.before->kind && all[i].place == input.before->place;
    const bool costs = all[i].seconds >= std::max(kStays * input.step_seconds, certain);
    const bool beaten = main != all.size() && all[main].seconds >= kClearlyDearer * all[i].seconds;
    if (same && costs && !beaten) main = i;
  }
  if (main == all.size() && all.size() > 1) {
    // Each may hide behind another one that costs as much.
    const double usual_step = step_of(usual);
    if (usual_step > 0 && now - usual_step >= least) {
      main = std::min(dearest_alone(input, step_of), all.size() - 1);
      all[main].seconds = now - usual_step;
      all[main].together = true;
    }
  }
  if (main < all.size()) {
    causes.main = std::move(all[main]);
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(main));
  } else if (!input.unsure) {
    causes.main = schedule_itself(input);
  }
  std::ranges::stable_sort(all, std::greater{}, &Cause::seconds);
  return causes;
}

}  // namespace weir::explain
