// SPDX-License-Identifier: Apache-2.0
// When the tiers above retune may act: a change that costs time once and gains some in each step
// (operator/tuner/README.md "Tiers"). Pure: what it remembers goes in and comes out.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "operator/tuner/tune.h"

namespace weir::tuner {

struct TierSettings {
  double min_gain = 0.10;  // minGainPercent, of throughput
  std::chrono::seconds cooldown{600};
  int min_steps_between = 8;  // of two changes, of any tier
};

struct TierState {
  std::string wanted;  // the offer that was worth it last time
  int wins_in_row = 0;
  std::map<std::string, std::int64_t> quarantine;  // offer -> step at which it may come back
  std::optional<SystemTime> last_change;
  std::chrono::seconds cooldown{0};  // 0 = the setting; doubled after a missed gain, cap 1 h
};

// A plan that could be had.
struct Offer {
  std::string text;                         // names it, the same at each evaluation
  double current_seconds = 0, seconds = 0;  // of a step, predicted: as it is, and with the offer
  double cost_seconds = 0;                  // pause, transfer, restart: once
};

struct Moment {
  SystemTime now{};
  std::int64_t step = 0;
  std::int64_t last_change_step = -1'000'000;  // of any tier
  double loss_seconds = 0;                     // since the last action (Escalation)
};

struct Weighed {
  bool act = false;
  bool enough = false;  // it gains what is asked for and is not kept out; it may have to wait
  double gain = 0;      // of throughput
  std::string reason;   // why (not), with numbers
  TierState state;      // an action counts as done
};
// Acts when, in this order: the gain reaches min_gain, the offer is not in quarantine, it is the
// second evaluation in a row that says so, some steps lie since the last change, the cooldown is
// over, the cost is repaid within one cooldown, and the loss since the last action reaches the cost
// (ski rental).
Weighed weigh(const Offer& offer, const Moment& moment, const TierSettings& settings,
              const TierState& state);
// Until the cooldown is over; zero when it is.
std::chrono::seconds cooldown_left(SystemTime now, const TierSettings& settings,
                                   const TierState& state);
// Nothing is on offer: "in a row" is over.
void nothing_offered(TierState& state);

// After 10 steps: slower by > 3 % at unchanged rates is rolled back and kept out for 100 steps;
// a third of the time to be saved, at most, is kept. Both double the cooldown, a hit halves it.
struct TierJudged {
  Verdict verdict = Verdict::kKeep;
  double measured_gain = 0;  // of throughput
  TierState state;
};
TierJudged judge(const Outcome& outcome, const std::string& offer, std::int64_t step,
                 const TierSettings& settings, const TierState& state);

// Seconds of a step of the input's current schedule, mean over its rate vectors, with the
// correction factor. Nothing if the rate of a link is unknown.
std::optional<double> predicted_step(const Input& input, const State& state);

}  // namespace weir::tuner
