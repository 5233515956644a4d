// SPDX-License-Identifier: Apache-2.0
// The rank's side of worker/coordinator/README.md "Plan switch" as the control channel sees it. The
// engine's switch point fulfils it, so that engine and control do not know each other. All calls
// come from the control thread and must not block.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::control {

// Answers come later from the engine thread; call exactly once. Empty reason = yes.
using Answer = std::function<void(std::string reason)>;

// Does `next` need new connections? The rule of both ends: in band only when the tier changes
// nothing but the schedule and the generation lives (worker/coordinator/README.md "Plan switch").
// current: null when none is in force. Incarnation > 0 is a rejoin: always a new generation.
inline bool starts_generation(const schedule::Plan* current, const schedule::Plan& next,
                              int incarnation) {
  const bool in_band_tier =
      next.trigger == schedule::Trigger::kRetune || next.trigger == schedule::Trigger::kManual;
  return current == nullptr || incarnation > 0 || !in_band_tier ||
         !schedule::same_generation(*current, next);
}

class PlanTarget {
 public:
  virtual ~PlanTarget() = default;
  // Legal? memory? buffers. Answers READY (empty) or REJECT (reason). A plan of a new generation is
  // kept besides the current one.
  virtual void prepare(const schedule::Plan& plan, int incarnation, Answer answer) = 0;
  // The same generation: stage 0 switches at its next step >= at_step (others when they read the
  // epoch). A new generation: every rank finishes at_step-1 if its links still work, builds the
  // stage, connects, then answers (READY_STATE). at_step: 0 on a fresh start or with state
  // Checkpoint; the number of completed steps that all ranks share when a broken generation is
  // joined again with state Keep (a rank that stands elsewhere answers with an error); else the
  // highest reported step + 2.
  virtual void commit(std::uint32_t revision, std::int64_t at_step, Answer answer) = 0;
  virtual void go(std::uint32_t revision) = 0;     // a new generation may run
  virtual void abort(std::uint32_t revision) = 0;  // forget it, the current plan stays
  // A rank of the current generation is gone: drop the running step, keep the state, wait for the
  // next prepare (incarnation + 1, or a new revision).
  virtual void peer_lost(int replica, int stage, const std::string& reason) {
    static_cast<void>(replica), static_cast<void>(stage), static_cast<void>(reason);
  }
  // All ranks of the plan have done their last step: an idle rank ends too.
  virtual void finished() {}
  // Save the state after `save.step` completed steps; answered by SAVED, which whoever writes it
  // sends.
  virtual void save(const protocol::Save& save) { static_cast<void>(save); }
  // The checkpoint of that step is complete, or why not; leave: a rank that waits for it may end.
  virtual void saved(std::int64_t step, const std::string& error, bool leave) {
    static_cast<void>(step), static_cast<void>(error), static_cast<void>(leave);
  }
  // Partial: with whom to average after the step that this replica has said SYNC_READY for.
  virtual void grant(const protocol::Grant& grant) { static_cast<void>(grant); }
};

}  // namespace weir::control
