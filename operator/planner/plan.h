// SPDX-License-Identifier: Apache-2.0
// Cuts a model into stages, gives each stage devices, and puts the ranks on servers. Pure and
// deterministic: equal input gives an equal plan, for any number of threads. What a PlanReport
// promises, and of what: operator/planner/README.md "What is exact, and about what".
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/planner/model/model.h"
#include "operator/planner/report.h"
#include "worker/base/result.h"
#include "worker/schedule/caps.h"
#include "worker/schedule/plan.h"

namespace weir::planner {

enum class Objective : unsigned char { kSync, kAsync };  // time of a step; steady bottleneck
enum class CapRules : unsigned char { kKfkb, kSlack, kBoth };
enum class Compat : unsigned char {  // operator/planner/README.md "Earlier planners"
  kNone,
  kPipedream,
  kPipedreamNoTransfer,
  kSync0,
  kDapple
};

struct Request {
  int global_batch = 0;
  std::optional<int> micro_batch_size;  // unset: divisors of the global batch are tried
  std::optional<int> stages;            // unset: 1..number of devices
  schedule::Family family = schedule::Family::kKfkb;
  schedule::Dispatch dispatch = schedule::Dispatch::kHint;
  int k_min = 1, k_max = 8;      // clipped to M
  std::optional<int> k_initial;  // fixes k of this plan
  std::vector<int> caps;         // not empty: fixed by the user
  bool split = false;            // backwards may be split where caps are chosen

  Objective objective = Objective::kSync;
  int data_parallel = 1;
  int most_ranks_per_stage = 1;  // of one replica; 0 = as many as there are
  bool use_all_devices = false;
  CapRules cap_rules = CapRules::kKfkb;
  Compat compat = Compat::kNone;
  // Stages are ranges of the model's own order, as workers run it. Else any topological order.
  bool keep_order = true;
  double tolerance = 1e-6;                  // of the bottleneck's bisection, relative
  double tie_of_k = 0.005;                  // the smallest k whose step is within this of the best
  double min_gain = 0.03;                   // of switchShare; retune.minGainPercent
  const schedule::Plan* current = nullptr;  // of equal placements the nearest to this one
  bool sensitivity = false;                 // also fill sensitivity[]: more simulations
};

struct Limits {
  std::int64_t ideals = 2'000'000;
  std::int64_t memory_bytes = std::int64_t{1} << 30;
  int threads = 1;                            // micro-batch sizes are tried side by side
  std::int64_t simulated_events = 2'000'000;  // some 50 ms of simulation
  // Labels that the search for cuts joins at most, for candidates and for the certificate.
  std::int64_t search_steps = 5'000'000;
  std::int64_t proof_steps = std::numeric_limits<std::int64_t>::max();
  // Work of placing layouts on servers: scored assignments x replicas x S (S + 16).
  std::int64_t placement_work = std::numeric_limits<std::int64_t>::max();
  // Asked now and then from any of the threads; true: stop, and answer with the best so far, status
  // "heuristic". Empty: never.
  std::function<bool()> stop;
};
// The operator decides in some 0.1 s whatever the size of the job; several plans of one decision
// share that. Small jobs do not notice.
Limits operator_limits(int plans = 1);

// Ideals per model, for planning again with other links: they do not depend on bandwidths.
// One caller at a time.
class PlanCache {
 public:
  PlanCache();
  ~PlanCache();
  PlanCache(PlanCache&&) noexcept;
  PlanCache& operator=(PlanCache&&) noexcept;

  struct Contents;
  Contents& contents() { return *contents_; }

 private:
  std::unique_ptr<Contents> contents_;
};

// Errors: kInvalid with one line that names what does not fit (no stage fits into memory, batch not
// divisible, ...); kNotFound when the input is right and no plan fits.
Result<PlanReport> plan(const Model& model, const Cluster& cluster, const Request& request);
Result<PlanReport> plan(const Model& model, const Cluster& cluster, const Request& request,
                        const Limits& limits, PlanCache* cache = nullptr);

}  // namespace weir::planner
