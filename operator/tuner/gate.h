// SPDX-License-Identifier: Apache-2.0
// The gate of the tiers above retune, whose changes cost time once and gain some in each step: when
// a tier may act, and how the outcome is judged (operator/tuner/README.md "Tiers"). Pure: its state
// is an argument and a result.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "operator/tuner/tune.h"

namespace weir::tuner {

struct TierSettings {
  double min_gain = 0.10;  // minGainPercent / 100, of throughput
  std::chrono::seconds cooldown{600};
  int min_steps_between = 8;  // least steps between two changes of any tier
};

struct TierState {
  std::string wanted;  // offer that gained enough in the last evaluation
  int wins_in_row = 0;
  std::map<std::string, std::int64_t> quarantine;  // offer -> step from which it is allowed again
  std::optional<SystemTime> last_change;
  std::chrono::seconds cooldown{
      0};  // 0 = that of TierSettings; doubled after a missed gain, <= 1 h
};

// A change that a tier could make.
struct Offer {
  std::string text;                         // names the offer; equal at each evaluation
  double current_seconds = 0, seconds = 0;  // predicted step without and with the change
  double cost_seconds = 0;                  // pause, transfer and restart, once
};

struct Moment {
  SystemTime now{};
  std::int64_t step = 0;
  std::int64_t last_change_step = -1'000'000;  // of any tier
  double loss_seconds = 0;                     // after the last action (Escalation)
};

struct Weighed {
  bool act = false;
  bool enough = false;  // the gain is enough and the offer not in quarantine; it may have to wait
  double gain = 0;      // of throughput
  std::string reason;   // why it acts or not, with numbers
  TierState state;      // as if an action had been carried out
};
// Decides whether to act on an offer. All of these must hold; they are checked in this order: the
// gain reaches min_gain; the offer is not in quarantine; this is the second evaluation in a row
// that favours it; enough steps lie since the last change; the cooldown is over; the cost is repaid
// within one cooldown; the loss since the last action reaches the cost (ski rental).
Weighed weigh(const Offer& offer, const Moment& moment, const TierSettings& settings,
              const TierState& state);
// Time until the cooldown is over; zero = it is over.
std::chrono::seconds cooldown_left(SystemTime now, const TierSettings& settings,
                                   const TierState& state);
// Call it if the tier has no offer, which ends the row of wins.
void nothing_offered(TierState& state);

// Judges a change after 10 steps. If steps are slower by more than 3 % at unchanged rates, the
// verdict is a rollback, and the offer is kept out for 100 steps. If less than a third of the
// promised time was saved, the gain is missed. Both double the cooldown; a kept promise halves it.
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
