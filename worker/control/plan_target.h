// SPDX-License-Identifier: Apache-2.0
// The rank's side of worker/coordinator/README.md "Plan switch", as the control channel sees it.
// The engine's switch point implements it, so that engine and control do not depend on each other.
// All calls come from the control thread and must not block.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::control {

// Called exactly once, later and from the engine thread. An empty reason means success.
using Answer = std::function<void(std::string reason)>;

// Decides whether `next` needs new connections; coordinator and ranks use the same rule. A change
// is in band only if its tier changes nothing but the schedule and the generation is alive
// (worker/coordinator/README.md "Plan switch"). `current` is null if no plan is in force. An
// incarnation above 0 is a rejoin and always a new generation.
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
  // Checks legality and memory and reserves buffers. Answers READY (empty reason) or REJECT
  // (reason). A plan of a new generation is kept beside the current plan.
  virtual void prepare(const schedule::Plan& plan, int incarnation, Answer answer) = 0;
  // Same generation: stage 0 switches at its next step >= at_step; other stages switch when they
  // read the epoch. New generation: each rank finishes at_step - 1 if its links still work, builds
  // its stage, connects and then answers (READY_STATE). at_step is 0 on a fresh start and with
  // state Checkpoint. If a broken generation is rejoined with state Keep, at_step is the number of
  // completed steps that all ranks share, and a rank with another number answers with an error.
  // Otherwise at_step is the highest reported step + 2.
  virtual void commit(std::uint32_t revision, std::int64_t at_step, Answer answer) = 0;
  virtual void go(std::uint32_t revision) = 0;     // the new generation may run
  virtual void abort(std::uint32_t revision) = 0;  // forgets the plan; the current plan stays
  // A rank of the current generation is gone: drops the running step, keeps the state and waits for
  // the next prepare (incarnation + 1, or a new revision).
  virtual void peer_lost(int replica, int stage, const std::string& reason) {
    static_cast<void>(replica), static_cast<void>(stage), static_cast<void>(reason);
  }
  // All ranks of the plan have done their last step, so an idle rank ends, too.
  virtual void finished() {}
  // Saves the state after `save.step` completed steps. The component that writes the files sends
  // SAVED.
  virtual void save(const protocol::Save& save) { static_cast<void>(save); }
  // The checkpoint of the step is complete, or failed with `error`. If `leave` is set, a rank that
  // waits for it may end.
  virtual void saved(std::int64_t step, const std::string& error, bool leave) {
    static_cast<void>(step), static_cast<void>(error), static_cast<void>(leave);
  }
  // Partial only: the replicas to average with after the step of this replica's last SYNC_READY.
  virtual void grant(const protocol::Grant& grant) { static_cast<void>(grant); }
};

}  // namespace weir::control
