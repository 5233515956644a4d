// SPDX-License-Identifier: Apache-2.0
// The gate of all tiers (operator/adaptation/gate/README.md): whether a change
// may be made now, and whether one that was made has kept its promise. Pure:
// what it remembers is an argument and a result.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "operator/adaptation/gate/calibration.h"

namespace weir::gate {

using SystemTime = std::chrono::system_clock::time_point;

inline constexpr double kSlower = 0.03;  // a step that is slower by more is rolled back
inline constexpr int kStepsBetween = 8;  // least steps between two changes of any tier
inline constexpr std::int64_t kQuarantineSteps = 100;  // after a rollback

// Each kind of offer has its rules: what it must pass, and how its outcome is judged.
struct Rules {
  double least_gain = 0.03;           // of throughput
  bool or_equal = true;               // a gain that is equal to the least one is enough
  int wins_needed = 2;                // evaluations in a row that must favour a change
  bool same_offer = true;             // they must favour the same one
  std::chrono::seconds cooldown{60};  // 0 = it waits for none (weir.dev/replan)
  int steps_between = kStepsBetween;  // since the last change of any tier
  // The cost must be repaid within one cooldown, and the loss since the last
  // action must reach it (ski rental).
  bool must_repay = false;
};

// For changes that cost time once and gain some in each step. asked: weir.dev/replan waives the
// cooldown.
constexpr Rules costly_rules(int min_gain_percent, int cooldown_seconds, bool asked) {
  return {.least_gain = min_gain_percent / 100.0,
          .or_equal = true,
          .wins_needed = 2,
          .same_offer = true,
          .cooldown = std::chrono::seconds(asked ? 0 : cooldown_seconds),
          .steps_between = kStepsBetween,
          .must_repay = true};
}

// When a tier of the spec has changed something last, and how long it rests.
struct Clock {
  std::optional<SystemTime> last_change;
  // 0 = that of Rules; doubled after a missed gain, at most 1 h.
  std::chrono::seconds cooldown{0};
};

// The memory of one kind of offer.
struct Record {
  std::string wanted;  // offer that gained enough in the last evaluation
  int wins_in_row = 0;
  std::map<std::string, std::int64_t> quarantine;  // offer -> step from which it is allowed again
};

// A change that could be made.
struct Offer {
  std::string name;  // equal at each evaluation
  double now_seconds = 0,
         then_seconds = 0;  // predicted step without and with the change
  double cost_seconds = 0;  // pause, transfer and restart, once
};

struct Moment {
  SystemTime now{};
  std::int64_t step = 0;
  std::int64_t last_change_step = -1'000'000;  // of any tier
  double loss_seconds = 0;                     // after the last action of regroup or replace
  bool unjudged = false;                       // the last change has no outcome yet
};

struct Weighed {
  bool act = false;
  bool enough = false;  // the gain is enough and the offer not in quarantine; it
                        // may have to wait
  double gain = 0;      // of throughput
  std::string reason;   // why it acts or not, with numbers
  std::string answer;   // the end of the reason, after the predicted step times
  Record record;        // if it acts, as after the change
};
// Decides whether to act on an offer. All of these must hold; they are checked
// in this order: the gain is enough; the offer is not in quarantine; enough
// evaluations in a row have favoured it; reason_to_wait is empty; its cost is
// repaid. The caller starts the clock when it acts.
Weighed weigh(const Offer& offer, const Moment& moment, const Rules& rules, const Clock& clock,
              const Record& record);
// Why no change may be made now, whatever it gains; "" = one may: the last
// change is judged, enough steps lie since then, and the cooldown is over.
std::string reason_to_wait(const Moment& moment, const Rules& rules, const Clock& clock);
// Time until the cooldown is over; zero = it is over.
std::chrono::seconds cooldown_left(SystemTime now, const Rules& rules, const Clock& clock);
// Call it if there is no offer, which ends the row of wins.
void nothing_offered(Record& record);
// Removes what is allowed again from the quarantine.
void end_quarantine(Record& record, std::int64_t step);
// A new leader takes from status what its clock does not know.
void resume(Clock& clock, std::optional<SystemTime> last_change, int cooldown_seconds);

// Outcome of a change: both plans on the network of now (README "Outcome").
struct Measured {
  double before_seconds = 0, after_seconds = 0;  // steps of the plan before and of the new one
  double error = 0;                              // standard error of their ratio, relative
  int before_steps = 0, after_steps = 0;         // that were measured
  double predicted_gain = 0;                     // when the change was decided
  std::optional<double> predicted_now;           // for the network of now
  std::optional<Interval> interval_now;          // 80 %, of predicted_now
  bool restated = false;   // before_seconds is simulated: the plan before was hardly measured
  bool can_return = true;  // there is a way back
};
enum class Verdict : unsigned char { kKeep, kMissed, kRollback };
struct Judged {
  Verdict verdict = Verdict::kKeep;
  double measured_gain = 0;  // of throughput
  double gain_error = 0;     // its standard error
  Clock clock;
  Record record;
};
// If throughput has fallen by more than 3 %, and certainly fallen (80 %), the verdict is a
// rollback, and the offer is kept out for 100 steps. If less than a third of the promised time was
// saved, by more than two standard errors, the gain is missed. Both double the cooldown; a kept
// promise halves it.
Judged judge(const Measured& measured, const std::string& offer, std::int64_t step,
             const Rules& rules, const Clock& clock, const Record& record);

// Texts of event PlanOutcome and of Degraded/PredictedGainMissed. what: the
// change, may be empty.
std::string outcome_text(std::int64_t revision, const std::string& what, const Measured& measured,
                         const Judged& judged);
std::string missed_text(const Measured& measured, const Judged& judged);

}  // namespace weir::gate
