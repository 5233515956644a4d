// SPDX-License-Identifier: Apache-2.0
// Split backwards for given caps: what stages hold and postpone (worker/schedule/README.md "Split
// backward"). Planner and tuner choose by these functions. Pure.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "worker/schedule/simulator.h"

namespace weir::schedule {

// Whether some stage has weight gradients that could wait.
bool has_weights(std::span<const StageTime> stages);

// A stage may hold so much with a split backward: by its memory at its cap, and by other limits.
struct HeldLimit {
  int most = 0;        // micro-batches from F to W; below the cap: the caps cannot be split
  bool known = false;  // else memory is unknown, and more than x_0 is not tried
};

// Values of Split::held that are worth a simulation, without duplicates: A_s = x_s; A_s = x_0, the
// most that any device holds already; A_s = the limit. Each within the limits, so a device with
// less memory holds less. Empty if a limit is below its cap. limits: one per stage.
std::vector<std::vector<int>> held_choices(std::span<const int> caps,
                                           std::span<const HeldLimit> limits);

// The schedule with split backwards that hold at most `held`. It postpones most_postponed or
// nothing, whichever makes the shorter step if messages come a little later than in the model; of
// equal ones nothing. dispatch: the wanted one. sums: as for most_postponed. Cost: two simulated
// steps.
Schedule with_split(Schedule schedule, std::vector<int> held, Dispatch dispatch, int micro_batches,
                    const PipelineModel& model,
                    std::span<const std::chrono::nanoseconds> sums = {});

// Text of a split, "held 8 postponed 0,1,2,3"; one number if it is the same on all stages, and no
// `postponed` if all are 0.
std::string describe(const Split& split);

}  // namespace weir::schedule
