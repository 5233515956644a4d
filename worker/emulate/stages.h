// SPDX-License-Identifier: Apache-2.0
// Stages around another stage, of which the time counts.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "worker/stage/stage.h"

namespace weir::emulate {

struct StageTimes {
  std::function<std::chrono::nanoseconds(int samples)> forward, backward;
  // The parts of a split backward. Empty: the first part takes all of `backward`, the second none.
  std::function<std::chrono::nanoseconds(int samples)> backward_input = {}, backward_weights = {};
  // From the beginning of a backward, or of its weights if it is split, until the gradients of a
  // layer are there (0 = the first one, which is the last to come): its sum over replicas sets out
  // then. Empty: when they are.
  std::function<std::chrono::nanoseconds(std::size_t layer, int samples)> backward_until = {},
                                                                          weights_until = {};
  std::chrono::nanoseconds update{0};
  // Factor by which an op that begins now takes longer: in the n-th step of this stage (from 1),
  // `since_start` after its first step began. Empty: always 1.
  std::function<double(std::int64_t n, std::chrono::nanoseconds since_start)> slowness = {};
};

// Does the real work of `inner`, then sleeps until start + the time of the op. The end of the sleep
// is absolute (worker/transport/README.md "Traps of measuring").
std::unique_ptr<stage::Stage> emulated_stage(std::unique_ptr<stage::Stage> inner, StageTimes times,
                                             std::shared_ptr<stage::Lateness> lateness);

// Returns random numbers of the right size instead of computing, and trains nothing: for stages of
// which only the emulated time counts. It has no loss.
std::unique_ptr<stage::Stage> idle_stage(std::unique_ptr<stage::Stage> inner,
                                         stage::Precision precision);

}  // namespace weir::emulate
