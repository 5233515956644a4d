// SPDX-License-Identifier: Apache-2.0
// Chooses k, caps, dispatch and micro-batch size of a running job (operator/tuner/README.md). Pure:
// what it remembers goes in and comes out.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/estimator/estimates.h"
#include "worker/schedule/caps.h"
#include "worker/schedule/plan.h"

namespace weir::tuner {

using SystemTime = std::chrono::system_clock::time_point;

struct Settings {
  double min_gain = 0.03;  // retune.minGainPercent, of throughput
  // When the micro-batch size changes; never below min_gain. 5 % lost 3.6 % against the best fixed
  // plan under bursts, 3 % 1 to 2.7 % (tests/bench/run reaction), and a miss is rolled back.
  double min_gain_size = 0.03;
  std::chrono::seconds cooldown{60};
  int min_steps_between = 8;  // of two changes
  // Of two evaluations. 2 steps see what 4 see: no needless change more, 5 s less to react.
  int min_steps_evaluated = 2, min_scrapes_evaluated = 2;
  int used_scrapes = 16;        // V
  int k_min = 1, k_max = 8;     // clipped to M
  bool k_fixed = false;         // mode Fixed: only caps up to k(S-s), k that of the current plan
  std::vector<int> fixed_caps;  // schedule.inFlightCaps
  schedule::Family family = schedule::Family::kKfkb;
  schedule::Dispatch dispatch = schedule::Dispatch::kHint;
};

// One of several replicas.
struct Replica {
  int micro_batches = 1;                    // its share
  std::vector<schedule::StageTime> stages;  // f, b of one micro-batch on its devices
};
// The longest time of each stage.
std::vector<schedule::StageTime> slowest_stages(const std::vector<Replica>& replicas);

// The job with one micro-batch size.
struct Size {
  int micro_batch_size = 1;                  // samples
  int micro_batches = 1;                     // M of the replica that has fewest
  std::vector<schedule::StageTime> stages;   // f, b of one micro-batch, of the slowest replica
  std::vector<std::int64_t> boundary_bytes;  // of one micro-batch, S-1
  std::vector<int> cap_max;                  // by memory, per stage; empty = no limit
};

// Everything about the job now.
struct Input {
  schedule::Schedule current;
  std::uint32_t revision = 0;               // of the applied plan
  int micro_batches = 1;                    // of the replica that has fewest
  std::vector<schedule::StageTime> stages;  // f, b of one micro-batch, of the slowest replica
  std::vector<Replica> replicas;            // empty: all alike, those that `rates` names
  double sync_seconds = 0;                  // of a step, after the slowest replica has ended
  double sync_lost_seconds = 0;             // of these: what slower links than usual cost
  // They do not wait for each other (sync.mode Partial). A step is then the time in which they
  // train as many samples as one step of all has: each at its own pace.
  bool apart = false;
  std::vector<std::int64_t> boundary_bytes;  // of one micro-batch, S-1
  std::vector<int> cap_max;                  // by memory, per stage; empty = no limit
  estimator::RateVectors rates;              // the newest 16 are used
  std::int64_t step = 0;                     // completed steps
  double measured_step_seconds = 0;          // mean since the last evaluation, 0 = unknown
  SystemTime now{};
  Settings settings;
  std::vector<Size> other_sizes;                  // empty = the user fixed the size
  std::map<estimator::LinkKey, double> baseline;  // bytes per second; absent = unknown
  std::vector<double> free_memory;  // fraction of the device, per stage; < 0 or empty = unknown
};

struct State {
  std::string wanted;  // description of the candidate that won last time
  int wins_in_row = 0;
  std::map<std::string, std::int64_t> quarantine;  // candidate -> step at which it may come back
  // Correction factor by micro-batch size: moving average of measured / predicted step, 0.8
  // .. 1.25.
  std::map<int, double> correction;
  std::optional<SystemTime> last_change;
  std::int64_t last_change_step = -1'000'000;
  std::chrono::seconds cooldown{0};  // 0 = the setting; doubled after a missed gain, cap 1 h
  std::map<estimator::LinkKey, double> costed_rates;  // means at the last costing
  std::string costed_inputs;                          // everything else at the last costing
  double costed_step = 0;  // seconds of the current plan then, without the correction factor
  std::int64_t evaluated_step = -1'000'000;    // of the last evaluation
  std::optional<SystemTime> evaluated_scrape;  // the newest it saw
  std::vector<int> guarded_samples;        // most samples in flight per stage after a memory alarm
  std::int64_t guarded_step = -1'000'000;  // of the last one
  double loss_seconds = 0;                 // since the last action of regroup or replace
  std::int64_t loss_step = -1;             // up to which it is summed
  std::string baseline_inputs;             // of baseline_step
  // Seconds of the current plan at the links' baselines, without sync and correction factor.
  double baseline_step = 0;
};

struct Costed {
  schedule::Schedule schedule;
  double seconds = 0;     // of a step: correction factor x mean over the rate vectors
  std::string text;       // "k=4 caps 16,12,8,4 Hint"
  int micro_batches = 1;  // M of a replica with the schedule's micro-batch size
  double reserve = 0;     // seconds if links were slower still: decides between equals
};

// Losses that no order of micro-batches repairs (operator/tuner/README.md "Escalation").
struct BoundLink {
  estimator::LinkKey link;
  double seconds = 0;  // median of one transfer over V, >= 0.9 x the slowest stage's f+b
};
struct Escalation {
  std::vector<BoundLink> link_bound;
  // Ski rental: sum of measured step - predicted step at the baselines, since the last action. 0
  // while no baseline is known.
  double loss_seconds = 0;
};

struct Decision {
  std::optional<Costed> change;    // set: switch to it
  double gain = 0;                 // of the best over the current plan, as a fraction of throughput
  double current_seconds = 0;      // predicted for the current plan
  std::string reason;              // why (not), with numbers, for logs and events
  std::vector<Costed> candidates;  // best first; empty when nothing was costed
  Escalation escalation;
  bool memory_guard = false;  // the change lowers caps because a device ran out of memory
  int simulations = 0;        // steps simulated to cost plans (the search for caps apart)
};

struct Tuned {
  Decision decision;
  State state;
};
// A change in the decision counts as done: the state that comes out starts cooldown and dwell.
Tuned tune(const Input& input, const State& state);

// "k=4 caps 16,12,8,4 Hint", with " mb=8" for more than one sample: Costed::text and the key of
// State::quarantine. A plan that a rank refused goes in there with the largest step, so that it is
// kept out until members change.
std::string describe(const schedule::Schedule& schedule);

// A device with less than 2 % of its memory free: tune() lowers the caps of its stage at once,
// whatever else is known.
bool memory_is_short(const std::vector<double>& free_memory);

// After an action of regroup or replace: the loss starts again.
void acted(State& state);

// After 10 steps on a new plan (operator/tuner/README.md "Outcome").
struct Outcome {
  double before_seconds = 0, after_seconds = 0, predicted_gain = 0;
  bool rates_unchanged = false;
};
enum class Verdict : unsigned char { kKeep, kMissed, kRollback };
struct Judged {
  Verdict verdict = Verdict::kKeep;
  double measured_gain = 0;  // of throughput
  State state;
};
Judged judge(const Outcome& outcome, const schedule::Schedule& judged, std::int64_t step,
             const Settings& settings, const State& state);

}  // namespace weir::tuner
