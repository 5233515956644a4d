// SPDX-License-Identifier: Apache-2.0
// The synchronous objective (operator/planner/README.md "How a plan is found"): cuts, replication,
// classes and k together, over a family of ideals. Exact over that family where it says so. Pure;
// links are those between classes: real servers are the placement's business.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "operator/planner/graph/dag.h"
#include "operator/planner/graph/ideals.h"
#include "operator/planner/model/cluster.h"
#include "worker/base/result.h"
#include "worker/schedule/plan.h"

namespace weir::planner {

struct SyncClass {  // devices of one replica that stages may use alike
  // Column of the times (Ideals::forward[column]) of a stage on r ranks: columns[r-1] where it
  // exists, else columns[0] divided by r. At least one.
  std::vector<int> columns{0};
  int count = 1;
  std::int64_t usable_bytes = 0;             // after the reserve; 0 = no limit
  int first_stage = 0, last_stage = 65'535;  // stageRange
};

enum class SyncFormula : unsigned char {
  kSync,   // the simulated step of kFkB with the optimizer's and AllReduce's visible part
  kSync0,  // compat sync0: sum + (M-1) max + tail; no buffers, no update, proportional times
};

struct SyncRequest {
  SyncFormula formula = SyncFormula::kSync;
  std::vector<SyncClass> classes;
  // [class][class]: from a stage on the first to the next on the second, and the gradients back.
  std::vector<std::vector<LinkRate>> links;
  std::vector<LinkRate> rings;      // by class: the slowest hop of an AllReduce inside it
  int micro_batches = 16;           // M, of one replica
  int replicas = 1;                 // D: AllReduce spans D r ranks
  int k_min = 1, k_max = 1;         // clipped to M
  bool kfkb = true, slack = false;  // cap rules: min(M, k(S-s)), min(M, 1 + k(S-1-s))
  schedule::Dispatch dispatch = schedule::Dispatch::kHint;  // caps of k=1 run Strict
  std::vector<int> caps;  // not empty: fixed by the user; one value per stage fixes S
  int least_stages = 1, most_stages = 8;
  int most_ranks = 1;            // of a stage: r; 0 = as many as there are devices
  bool use_all_devices = false;  // else devices may stay idle
  double overhead = 0;           // seconds of a micro-batch on any stage
  std::size_t most_candidates = 16;
  std::int64_t most_pairs = 2'000'000'000;  // of stages looked at; over it: status gap
  // Labels joined at most in the search for candidates of kSync, about 20 ns each. No certificate
  // depends on this limit.
  std::int64_t most_steps = 5'000'000;
  // Labels joined at most for the certificate. Beyond it the status is gap.
  std::int64_t proof_steps = std::numeric_limits<std::int64_t>::max();
  bool certify = true;  // false: the bound may be weak, its own search is left out
  // Asked every few milliseconds once there is a plan; true: the best so far, and the bound proved
  // so far. May be empty.
  std::function<bool()> stop;
};

// A plan without servers: stage s runs ideals[s+1] without ideals[s] on ranks[s] devices of
// classes[s].
struct Candidate {
  std::vector<std::size_t> ideals;  // S+1: the empty one first, all nodes last
  std::vector<int> classes, ranks;  // S
  int k = 1;                        // of the caps
  std::vector<int> caps;            // S
  schedule::Dispatch dispatch = schedule::Dispatch::kStrict;
  double value = 0;  // seconds of a step by the request's formula

  std::size_t stages() const { return classes.size(); }
  bool operator==(const Candidate&) const = default;
};

struct Certificate {
  double lower_bound = 0;  // seconds; no plan over this family is faster, in this model
  double gap = 0;          // best value / lower bound - 1
  bool optimal = false;    // gap within 1e-6
  bool complete = false;   // the family was all ideals: the bound holds for every chain of stages
  std::string formula;     // what the bound is about: "sync0" or "sync (bound V)"
};

struct SyncPlans {
  std::vector<Candidate> candidates;  // best value first; at least one
  Certificate certificate;
  std::size_t boundaries = 0;  // ideals that survived the bounds
  std::int64_t pairs = 0;      // stages looked at
};

// kInvalid: nothing fits; the message names the tightest constraint ("layer 7 alone needs ...":
// index of Model::layers). The caller has checked counts and shapes (WEIR_CHECK).
Result<SyncPlans> plan_sync(const Dag& dag, const Ideals& ideals, const SyncRequest& request);

}  // namespace weir::planner
