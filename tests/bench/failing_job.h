// SPDX-License-Identifier: Apache-2.0
// A job of real workers whose processes are killed at random, and come back: what is left of its
// throughput. Standalone: worker 0 coordinates from a plan file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weir::bench {

struct Failures {
  int replicas = 4, stages = 1, micro_batches = 16;  // of a replica
  double step = 0, between = 0, away = 0;  // seconds: of a step, mean, until a new process
  double seconds = 300;                    // how long processes are killed
  bool fixed = false;                      // intervals are all equal, not exponential
  bool coordinator = false;                // worker 0 is killed, too
  std::uint64_t seed = 1;
};

struct Survived {
  double undisturbed = 0, after = 0;  // seconds of a step before the first failure, behind the last
  double meanwhile = 0;               // median of those that were completed between them
  double seconds = 0;                 // from a step's end to that of another
  std::int64_t steps = 0;             // completed meanwhile
  int failures = 0, of_coordinator = 0;
  double dropped = 0;        // seconds from a step's begin to the failure that hit it, in all
  std::int64_t again = 0;    // log entries of steps that the same process had logged before
  std::int64_t missing = 0;  // steps that nobody has logged
  std::int64_t compared = 0, different = 0;  // logged losses, and those unlike one process alone
  int covers = 0, joins = 0;                 // as the coordinator's log tells, if it lived
  // The shorter of both: a machine that is busy for a while makes goodput lower, never higher.
  double ideal() const { return std::min(undisturbed, after); }
  double goodput() const { return static_cast<double>(steps) * ideal() / seconds; }
};

// Arguments of all workers, and of one alone that emulates nothing, whose losses are the same.
std::vector<std::string> small_model();

// Nothing when the job does not begin, or makes no step for a minute and 20 steps; standard error
// says why.
std::optional<Survived> survive(const Failures& failures);

}  // namespace weir::bench
