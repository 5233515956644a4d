// SPDX-License-Identifier: Apache-2.0
// Chooses k, caps, dispatch and micro-batch size of a running job
// (operator/adaptation/retune/README.md). Pure: its state is an argument and a result.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/adaptation/costing/cost.h"
#include "operator/adaptation/costing/loss.h"
#include "operator/adaptation/gate/gate.h"
#include "operator/estimator/estimates.h"
#include "worker/schedule/caps.h"
#include "worker/schedule/plan.h"

namespace weir::retune {

using costing::Replica;
using costing::Size;
using gate::SystemTime;

// Any candidate may win the second evaluation, because a change costs next to nothing.
inline constexpr gate::Rules kRules{.least_gain = 0.03,
                                    .or_equal = false,
                                    .wins_needed = 2,
                                    .same_offer = false,
                                    .cooldown = std::chrono::seconds(60),
                                    .steps_between = gate::kStepsBetween,
                                    .must_repay = false};

struct Settings {
  gate::Rules rules = kRules;  // with the least gain and the cooldown of the spec
  // Least gain if the micro-batch size changes; never below that of the rules. Under bursts, 5 %
  // lost 3.6 % against the best fixed plan, 3 % lost 1 to 2.7 % (tests/bench/run reaction).
  double min_gain_size = 0.03;
  // Least steps and scrapes between two evaluations. 2 steps cause no more needless changes than 4,
  // and the reaction is 5 s faster.
  int min_steps_evaluated = 2, min_scrapes_evaluated = 2;
  int k_min = 1, k_max = 8;     // clipped to M
  bool k_fixed = false;         // mode Fixed: k stays; only caps up to k(S-s) are allowed
  std::vector<int> fixed_caps;  // schedule.inFlightCaps
  schedule::Family family = schedule::Family::kKfkb;
  schedule::Dispatch dispatch = schedule::Dispatch::kHint;
  bool splits = false;  // backwards may be split; facts::why_whole
};

struct Input : costing::Input {
  gate::SystemTime now{};
  Settings settings;
  std::vector<double> free_memory;  // fraction of the device by stage; < 0 or empty = unknown
};

struct State {
  gate::Clock clock;
  gate::Record record;                         // offers are named by costing::describe
  std::int64_t last_change_step = -1'000'000;  // of any tier
  costing::State cost;
  std::map<estimator::LinkKey, double> costed_rates;  // mean rates at the last costing
  std::string costed_inputs;                          // all other inputs of the last costing
  double costed_step = 0;  // seconds of the current plan then, without the correction factor
  std::int64_t evaluated_step = -1'000'000;    // step of the last evaluation
  std::optional<SystemTime> evaluated_scrape;  // newest scrape in the last evaluation
  std::vector<int> guarded_samples;        // most samples in flight by stage after a memory alarm
  std::int64_t guarded_step = -1'000'000;  // step of the last memory alarm
};

struct Costed {
  schedule::Schedule schedule;
  double seconds = 0;     // of a step: correction factor x mean over the rate vectors
  std::string text;       // costing::describe(schedule)
  int micro_batches = 1;  // M of a replica with the schedule's micro-batch size
  double reserve = 0;     // seconds of a step if links become slower; decides between equal plans
};

// Losses that no order of micro-batches repairs (operator/adaptation/costing/README.md "Loss").
struct Escalation {
  std::vector<costing::BoundLink> link_bound;
  // Sum of measured minus predicted step at the baselines, over the steps after the last action. 0
  // if no baseline is known.
  double loss_seconds = 0;
};

struct Decision {
  std::optional<Costed> change;  // the plan to switch to, if any
  double gain = 0;               // of the best over the current plan, as a fraction of throughput
  double current_seconds = 0;    // predicted step of the current plan
  std::string reason;            // why it changes or not, with numbers, for logs and events
  std::string best;    // text of the plan with that gain; "" = none is better than the current one
  std::string answer;  // of the gate to that plan
  std::vector<Costed> candidates;  // best first; empty = nothing was costed
  Escalation escalation;
  std::string unknown;        // what is not known of the links, so that nothing can be costed
  bool too_soon = false;      // too little has been measured since the last evaluation
  bool fixed_order = false;   // there is nothing to tune
  bool memory_guard = false;  // the change lowers caps, because a device runs out of memory
  int simulations = 0;        // simulated steps, without those of the search for caps
};

struct Tuned {
  Decision decision;
  State state;
};
// If the decision has a change, the returned state counts it as made: its cooldown has begun.
// A plan that a rank refused is kept out by the caller, with the largest step, until the members
// change.
Tuned tune(const Input& input, const State& state);

}  // namespace weir::retune
