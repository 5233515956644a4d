// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/learning_rate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>

namespace weir::stage {
namespace {

constexpr double kLeastOfCosine = 0.1;
constexpr std::int64_t kDecayPart = 10;  // of all steps, by default

// How much of the way down is behind, from 0 to 1.
double fallen(const ModelOptions& options, std::int64_t step) {
  const std::int64_t length = decay_steps(options);
  const double done = static_cast<double>(step - (options.total_steps - length)) /
                      std::max(1.0, static_cast<double>(length));
  return std::clamp(done, 0.0, 1.0);
}

}  // namespace

bool falls(const ModelOptions& options) {
  return options.schedule != "constant";
}

double least_ratio(const ModelOptions& options) {
  return options.min_ratio.value_or(options.schedule == "cosine" ? kLeastOfCosine : 0.0);
}

std::int64_t decay_steps(const ModelOptions& options) {
  if (options.schedule != "wsd") return options.total_steps - options.warmup_steps;
  if (options.decay_steps > 0) return options.decay_steps;
  return std::max<std::int64_t>(1, options.total_steps / kDecayPart);
}

Status check_schedule(const ModelOptions& options) {
  constexpr std::array kNames{"constant", "cosine", "linear", "wsd"};
  if (options.warmup_steps < 0) return invalid("warmup: below 0");
  if (std::ranges::find(kNames, options.schedule) == kNames.end()) {
    return invalid("learning rate schedule",
                   options.schedule + " is none of constant, cosine, linear, wsd");
  }
  const double least = least_ratio(options);
  if (!(least >= 0 && least <= 1)) return invalid("min-lr-ratio", "not within [0, 1]");
  if (!falls(options)) return Unit{};
  if (options.total_steps < 1) {
    return invalid("learning rate schedule", options.schedule + " needs the total number of steps");
  }
  if (options.decay_steps > options.total_steps) {
    return invalid("decay-steps", std::to_string(options.decay_steps) + " are more than all " +
                                      std::to_string(options.total_steps) + " steps");
  }
  return Unit{};
}

double learning_rate(const ModelOptions& options, std::int64_t step) {
  const double rate = options.learning_rate;
  if (step < options.warmup_steps)
    return rate * (static_cast<double>(step + 1) / options.warmup_steps);
  if (!falls(options)) return rate;
  const double done = fallen(options, step);
  const double left =
      options.schedule == "cosine" ? 0.5 * (1 + std::cos(std::numbers::pi * done)) : 1 - done;
  const double least = least_ratio(options);
  return rate * (least + (1 - least) * left);
}

}  // namespace weir::stage
