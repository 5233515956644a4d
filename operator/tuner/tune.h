// SPDX-License-Identifier: Apache-2.0
// Chooses k, caps, dispatch and micro-batch size of a running job (operator/tuner/README.md). Pure:
// its state is an argument and a result.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/adaptation/gate/gate.h"
#include "operator/estimator/estimates.h"
#include "worker/schedule/caps.h"
#include "worker/schedule/plan.h"

namespace weir::tuner {

using gate::SystemTime;

// Any candidate may win the second evaluation, because a change costs next to nothing.
inline constexpr gate::Rules kRules{.least_gain = 0.03,
                                    .or_equal = false,
                                    .wins_needed = 2,
                                    .same_offer = false,
                                    .cooldown = std::chrono::seconds(60),
                                    .steps_between = gate::kStepsBetween,
                                    .must_repay = false,
                                    .when_rates_changed = gate::Rules::Changed::kNothingLearnt};

struct Settings {
  gate::Rules rules = kRules;  // with the least gain and the cooldown of the spec
  // Least gain if the micro-batch size changes; never below that of the rules. Under bursts, 5 %
  // lost 3.6 % against the best fixed plan, 3 % lost 1 to 2.7 % (tests/bench/run reaction).
  double min_gain_size = 0.03;
  // Least steps and scrapes between two evaluations. 2 steps cause no more needless changes than 4,
  // and the reaction is 5 s faster.
  int min_steps_evaluated = 2, min_scrapes_evaluated = 2;
  int used_scrapes = 16;        // size of V
  int k_min = 1, k_max = 8;     // clipped to M
  bool k_fixed = false;         // mode Fixed: k stays; only caps up to k(S-s) are allowed
  std::vector<int> fixed_caps;  // schedule.inFlightCaps
  schedule::Family family = schedule::Family::kKfkb;
  schedule::Dispatch dispatch = schedule::Dispatch::kHint;
};

struct Replica {
  int micro_batches = 1;                    // share of the replica
  std::vector<schedule::StageTime> stages;  // f, b of one micro-batch on its devices
};
// The longest time of each stage over all replicas.
std::vector<schedule::StageTime> slowest_stages(const std::vector<Replica>& replicas);

// A micro-batch size and what depends on it.
struct Size {
  int micro_batch_size = 1;                  // samples
  int micro_batches = 1;                     // smallest M of all replicas
  std::vector<schedule::StageTime> stages;   // f, b of one micro-batch in the slowest replica
  std::vector<std::int64_t> boundary_bytes;  // bytes of one micro-batch by boundary, S-1
  std::vector<int> cap_max;                  // limit by memory for each stage; empty = no limit
};

struct Input {
  schedule::Schedule current;
  std::uint32_t revision = 0;               // of the applied plan
  int micro_batches = 1;                    // smallest M of all replicas
  std::vector<schedule::StageTime> stages;  // f, b of one micro-batch in the slowest replica
  std::vector<Replica> replicas;            // empty = all replicas that `rates` names are equal
  double sync_seconds = 0;                  // exposed sync of a step
  double sync_lost_seconds = 0;             // part of it that links below their usual rate cost
  // Replicas do not wait for each other (sync.mode Partial). A step is then the time in which all
  // together train a global batch, each at its own pace.
  bool apart = false;
  std::vector<std::int64_t> boundary_bytes;  // bytes of one micro-batch by boundary, S-1
  std::vector<int> cap_max;                  // limit by memory for each stage; empty = no limit
  estimator::RateVectors rates;              // the newest 16 are used
  std::int64_t step = 0;                     // completed steps
  double measured_step_seconds = 0;          // mean over recent steps; 0 = unknown
  SystemTime now{};
  Settings settings;
  std::vector<Size> other_sizes;                  // empty = the spec fixes the size
  std::map<estimator::LinkKey, double> baseline;  // bytes per second; absent = unknown
  std::vector<double> free_memory;  // fraction of the device by stage; < 0 or empty = unknown
};

struct State {
  gate::Clock clock;
  gate::Record record;                         // offers are named by describe()
  std::int64_t last_change_step = -1'000'000;  // of any tier
  // Correction factor, 0.8 .. 1.25, by micro-batch size: moving average of measured over predicted
  // step.
  std::map<int, double> correction;
  std::map<estimator::LinkKey, double> costed_rates;  // mean rates at the last costing
  std::string costed_inputs;                          // all other inputs of the last costing
  double costed_step = 0;  // seconds of the current plan then, without the correction factor
  std::int64_t evaluated_step = -1'000'000;    // step of the last evaluation
  std::optional<SystemTime> evaluated_scrape;  // newest scrape in the last evaluation
  std::vector<int> guarded_samples;        // most samples in flight by stage after a memory alarm
  std::int64_t guarded_step = -1'000'000;  // step of the last memory alarm
  double loss_seconds = 0;                 // after the last action of regroup or replace
  std::int64_t loss_step = -1;             // the loss is summed up to this step
  std::string baseline_inputs;             // inputs from which baseline_step was computed
  // Seconds of the current plan at the links' baselines, without sync and correction factor.
  double baseline_step = 0;
};

struct Costed {
  schedule::Schedule schedule;
  double seconds = 0;     // of a step: correction factor x mean over the rate vectors
  std::string text;       // describe(schedule)
  int micro_batches = 1;  // M of a replica with the schedule's micro-batch size
  double reserve = 0;     // seconds of a step if links become slower; decides between equal plans
};

// Losses that no order of micro-batches repairs (operator/tuner/README.md "Escalation").
struct BoundLink {
  estimator::LinkKey link;
  double seconds = 0;  // median of one transfer over V, >= 0.9 x the slowest stage's f+b
};
struct Escalation {
  std::vector<BoundLink> link_bound;
  // Sum of measured minus predicted step at the baselines, over the steps after the last action. 0
  // if no baseline is known.
  double loss_seconds = 0;
};

struct Decision {
  std::optional<Costed> change;    // the plan to switch to, if any
  double gain = 0;                 // of the best over the current plan, as a fraction of throughput
  double current_seconds = 0;      // predicted step of the current plan
  std::string reason;              // why it changes or not, with numbers, for logs and events
  std::vector<Costed> candidates;  // best first; empty = nothing was costed
  Escalation escalation;
  bool memory_guard = false;  // the change lowers caps, because a device runs out of memory
  int simulations = 0;        // simulated steps, without those of the search for caps
};

struct Tuned {
  Decision decision;
  State state;
};
// If the decision has a change, the returned state counts it as made: its cooldown has begun.
Tuned tune(const Input& input, const State& state);

// Text of a schedule: "k=4 caps 16,12,8,4 Hint", with " mb=8" for more than one sample. It is the
// key of the quarantine. The caller adds a plan that a rank refused there with the largest step,
// so that it is kept out until the members change.
std::string describe(const schedule::Schedule& schedule);

// Whether a device has less than 2 % of its memory free. Then tune() lowers the cap of its stage at
// once, even if rates are unknown.
bool memory_is_short(const std::vector<double>& free_memory);

// Call it after an action of regroup or replace. The loss begins again at 0.
void acted(State& state);

// Seconds of a step of the input's current schedule, mean over its rate vectors, with the
// correction factor. Nothing if the rate of a link is unknown.
std::optional<double> predicted_step(const Input& input, const State& state);

}  // namespace weir::tuner
