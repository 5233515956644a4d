// SPDX-License-Identifier: Apache-2.0
// How the replicas of a job keep one model, and how many micro-batches each gets
// (operator/groups/README.md). Pure: what it remembers goes in and comes out. Two decisions, the
// cheaper first:
//   shares (tier retune)   a replica that stays slower than the others gets fewer micro-batches of
//                          the same global batch; the mathematics stay exact
//   mode   (tier regroup)  speeds that keep changing: Partial, only with sync.mode Auto and
//                          adaptation.mode Auto; and back to Exact when they are even again
// A changed sync block of the spec takes effect at once, in every adaptation mode.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/estimator/estimates.h"
#include "operator/groups/share_cost.h"
#include "worker/groups/settings.h"

namespace weir::group_policy {

enum class Mode : unsigned char { kExact, kPartial };
// spec.sync.mode.
enum class Allowed : unsigned char { kExact, kAuto, kPartial };
// spec.adaptation.mode.
enum class Adaptation : unsigned char { kOff, kObserve, kAuto };

// spec.sync.
struct Spec {
  Allowed mode = Allowed::kExact;
  std::optional<double> max_staleness;  // unset: 6, or 12 for very uneven step times
  std::optional<int> group_size_max;    // unset: usual_group_size_max(P)
  bool rebalance = true;
};

// What the plan says: its SyncPolicy.
struct Policy {
  Mode mode = Mode::kExact;
  groups::Settings groups;  // kept while Exact, too
  bool operator==(const Policy&) const = default;
};

// A tier of spec.adaptation and its clock.
struct Tier {
  bool enabled = true;
  bool ready = true;    // cooldown over, no switch in progress, no change in its outcome check
  double min_gain = 0;  // minGainPercent / 100, of throughput
  bool settled = true;  // ready but for the cooldown: a change that harms need not wait for it
};

// Everything about the job now.
struct Input {
  Spec spec;
  Adaptation adaptation = Adaptation::kAuto;
  Tier retune{true, true, 0.03}, regroup{true, true, 0.10};
  Policy current;                        // of the applied plan
  std::vector<int> shares;               // its microBatches, one per replica
  int stages = 1;                        // S
  int least_share = 1;                   // largest cap and k of the plan: no share may be below
  std::int64_t step = 0;                 // completed
  double step_seconds = 0;               // measured, of the job; 0 = unknown
  estimator::ReplicaEstimates replicas;  // measured since the last change of shares or mode
};

// Part of AdaptationState. Losing it is harmless.
struct State {
  // Shares that did not keep their promise -> the step at which they may come back.
  std::map<std::vector<int>, std::int64_t> quarantine;
  std::int64_t no_partial_before = 0;  // step; after a Partial that was rolled back
  // Speeds that keep changing are no matter of shares: what following them has cost limits it.
  ShareCost share_cost;
};

struct Decision {
  // Both only when Partial begins with even shares, or by_spec.
  std::optional<std::vector<int>> shares;  // new microBatches, same sum
  std::optional<Policy> policy;            // new sync policy
  bool by_spec = false;          // the user asked for it: no cooldown, no outcome check, Manual
  bool propose_only = false;     // adaptation.mode is not Auto: event PlanProposed, no plan
  bool returns_to_even = false;  // shares become more even; such a change is not rolled back
  double gain = 0;               // predicted, fraction of throughput; 0 with by_spec
  double step_seconds = 0;       // predicted; 0 = unknown
  // For the event and the log, always set: "replica 1 takes 2.000 s, median of the others 1.000 s
  // for 16 steps: shares 32,32 -> 44,20, predicted +48.9 %", or why nothing changes.
  std::string reason;
};
struct Decided {
  Decision decision;
  State state;
};

// One evaluation, every tick. Needs nothing measured to follow the spec.
Decided decide(const Input& input, const State& state);

// The policy of a first plan, and of one with another number of replicas (scale, restart).
Policy first_policy(const Spec& spec, int replicas);

// After the caller took a change back because steps became slower: not again for 100 steps.
void rolled_back_shares(State& state, const std::vector<int>& shares, std::int64_t step);
void rolled_back_partial(State& state, std::int64_t step);

const char* name(Mode mode);  // "Exact" "Partial"

}  // namespace weir::group_policy
