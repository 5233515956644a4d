// SPDX-License-Identifier: Apache-2.0
// A pipeline without replicas whose workers are told to end, one after the other, and hand their
// stages over to a worker that waits, as when a node is drained. Real processes on the loopback;
// compute is emulated, with its arithmetic, so that losses can be compared.
#pragma once

#include <optional>
#include <vector>

namespace weir::bench {

struct PlannedMoves {
  int stages = 3, micro_batches = 8, moves = 50;
  double step = 0.5;  // seconds
};

struct Moved {
  double step = 0;             // seconds: median of the steps without a move
  std::vector<double> pauses;  // by move: seconds beyond it from the end of a step to the next end
  int again = 0;               // steps that were done twice
  int compared = 0, different = 0;  // losses, with a worker alone
};

// Empty, with a line on stderr, if the job stands still. Worker 0 coordinates and stays.
std::optional<Moved> move_by_plan(const PlannedMoves& given);

}  // namespace weir::bench
