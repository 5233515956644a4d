// SPDX-License-Identifier: Apache-2.0
// The rank's side of a plan switch as the control channel sees it (scheduling.md 6); the engine's
// switch point fulfils it, so that engine and control do not know each other. All calls come from
// the control thread and must not block.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "worker/schedule/plan.h"

namespace weir::control {

// Answers come later from the engine thread; call exactly once. Empty reason = yes.
using Answer = std::function<void(std::string reason)>;

class PlanTarget {
 public:
  virtual ~PlanTarget() = default;
  // Legal? memory? buffers. Answers READY (empty) or REJECT (reason). A plan of a new generation is
  // kept besides the current one.
  virtual void prepare(const schedule::Plan& plan, int incarnation, Answer answer) = 0;
  // The same generation: stage 0 switches at its next step >= at_step (others when they read the
  // epoch). A new generation: every rank finishes at_step-1 if its links still work, builds the
  // stage, connects, then answers (READY_STATE).
  virtual void commit(std::uint32_t revision, std::int64_t at_step, Answer answer) = 0;
  virtual void go(std::uint32_t revision) = 0;     // a new generation may run
  virtual void abort(std::uint32_t revision) = 0;  // forget it, the current plan stays
};

}  // namespace weir::control
