// SPDX-License-Identifier: Apache-2.0
// Replicas of real workers with emulated compute, uneven as operator/adaptation/shares/README.md
// "Regimes" says, under one way of keeping their models together; and what came of it in so many
// seconds.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/multiproc/workers.h"

namespace weir::bench {

enum class Uneven {
  kNone,
  kOneSlow,   // the last replica takes `slow` times as long
  kTail,      // 10 % of the steps take Exp(3) steps longer
  kChanging,  // each is 3 times as slow for 15 % of the time, spells of 10 steps
  kSlowSync   // each port has 20 % for 15 % of the time, spells of 20 steps; root
};

struct Replicas {
  int replicas = 8, stages = 2, share = 8;  // share: micro-batches of each
  Uneven kind = Uneven::kNone;
  int slow = 1;
  int seed = 1;
  int jitter = 0;  // percent: of each step, lognormal (not with kChanging, which is by time)
  int steps = 60;  // the run ends after so many steps' time of a replica that is never slow

  double step_seconds() const;  // of such a replica
};

struct ReplicasOutcome {
  double throughput = 0;                                       // micro-batches of all a second
  std::vector<std::vector<std::pair<double, double>>> losses;  // of each: seconds, loss
  int drifts = 0;  // windows with a contraction above 0.5
  // Of the models, mean over the second half of the run (disagreement.h).
  double consensus_error = 0;

  // Mean of the newest losses of all replicas at that time.
  double loss_at(double seconds) const;
  // When all together had done so many steps; 0: never.
  double time_of(std::size_t steps) const;
  std::size_t steps_at(double seconds) const;
};

// program: recording_worker, or baseline_worker (baseline_groups.cpp). The shares of the plan are
// those of `setting`. Nothing, and a line on standard error: the workers did not train.
std::optional<ReplicasOutcome> run_replicas(const Replicas& setting, test::PlanText plan,
                                            const std::string& program = WEIR_RECORDING_WORKER);

}  // namespace weir::bench
