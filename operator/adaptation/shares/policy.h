// SPDX-License-Identifier: Apache-2.0
// Decides how the replicas of a job keep one model, and how many micro-batches each gets
// (operator/adaptation/shares/README.md). Pure: its state is an argument and a result. There are
// two decisions; the cheaper one comes first:
//   shares (tier retune)  If a replica stays slower than the others, it gets fewer micro-batches of
//                         the same global batch. The mathematics stay exact.
//   mode (tier regroup)   If speeds keep changing, Partial follows, but only with sync.mode Auto
//                         and adaptation.mode Auto. When they are even again, Exact returns.
// An edited sync block of the spec takes effect at once, in every adaptation mode.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "operator/adaptation/gate/gate.h"
#include "operator/adaptation/shares/share_cost.h"
#include "operator/estimator/estimates.h"
#include "worker/groups/settings.h"

namespace weir::shares {

enum class Mode : unsigned char { kExact, kPartial };
// spec.sync.mode.
enum class Allowed : unsigned char { kExact, kAuto, kPartial };
// spec.adaptation.mode.
enum class Adaptation : unsigned char { kOff, kObserve, kAuto };

// spec.sync.
struct Spec {
  Allowed mode = Allowed::kExact;
  std::optional<double> max_staleness;  // unset = 6, or 12 if step times are very uneven
  std::optional<int> group_size_max;    // unset = usual_group_size_max(P)
  bool rebalance = true;
};

// The SyncPolicy of a plan.
struct Policy {
  Mode mode = Mode::kExact;
  groups::Settings groups;  // Exact keeps them, too
  bool operator==(const Policy&) const = default;
};

// Windows of steps take the place of several evaluations in a row.
constexpr gate::Rules rules(double least_gain, std::chrono::seconds cooldown) {
  return {.least_gain = least_gain > 1e-9 ? least_gain : 1e-9,  // something must be gained
          .or_equal = true,
          .wins_needed = 1,
          .same_offer = false,
          .cooldown = cooldown,
          .steps_between = gate::kStepsBetween,
          .must_repay = false};
}

// A tier of spec.adaptation and its state.
struct Tier {
  bool enabled = true;
  gate::Rules rules;
  gate::Clock clock;
};

struct Input {
  Spec spec;
  Adaptation adaptation = Adaptation::kAuto;
  Tier retune{true, rules(0.03, std::chrono::seconds(60)), {}};
  Tier regroup{true, rules(0.10, std::chrono::seconds(600)), {}};
  Policy current;                        // of the applied plan
  std::vector<int> shares;               // microBatches of the applied plan, one per replica
  int stages = 1;                        // S
  int least_share = 1;                   // largest cap or k of the plan; the least allowed share
  gate::Moment moment;                   // with the completed steps
  double step_seconds = 0;               // measured step of the job; 0 = unknown
  estimator::ReplicaEstimates replicas;  // measured after the last change of shares or mode
};

// Part of AdaptationState. It may be lost at any time.
struct State {
  gate::Record shares;  // offers are named as "32,32"
  gate::Record mode;    // the only offer that is kept out is name(Mode::kPartial)
  // Limits changes of shares that follow speeds which keep changing.
  ShareCost share_cost;
};

struct Decision {
  // Both are set only if Partial begins with even shares, or by_spec.
  std::optional<std::vector<int>> shares;  // new microBatches with the same sum
  std::optional<Policy> policy;            // new sync policy
  bool by_spec = false;       // the spec demands it: no cooldown, no outcome check, trigger Manual
  bool propose_only = false;  // adaptation.mode is not Auto: event PlanProposed, no plan
  bool returns_to_even = false;  // shares become more even; such a change is not rolled back
  double gain = 0;               // predicted fraction of throughput; 0 with by_spec
  double step_seconds = 0;       // predicted step; 0 = unknown
  // Text for event and log, always set: the change and its reason ("replica 1 takes 2.000 s, median
  // of the others 1.000 s for 16 steps: shares 32,32 -> 44,20, predicted +48.9 %"), or why nothing
  // changes.
  std::string reason;
};
struct Decided {
  Decision decision;
  State state;
};

// One evaluation; call it at every tick. It follows the spec even if nothing is measured.
Decided decide(const Input& input, const State& state);

// The policy of a first plan, or of a plan with another number of replicas.
Policy first_policy(const Spec& spec, int replicas);

const char* name(Mode mode);  // "Exact" "Partial"

}  // namespace weir::shares
