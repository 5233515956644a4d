// SPDX-License-Identifier: Apache-2.0
// Decides in which order a stage runs its ops. Nothing else does: the engine, the simulator and the
// planner all call next_op (worker/schedule/README.md "Dispatch").
#pragma once

#include <optional>
#include <vector>

#include "worker/schedule/plan.h"

namespace weir::schedule {

enum class OpKind : unsigned char { kForward, kBackward };

struct Op {
  OpKind kind = OpKind::kForward;
  int micro_batch = 0;
  bool operator==(const Op&) const = default;
};

// The order of ops on one stage: M forwards and M backwards, each kind by rising micro-batch.
using Order = std::vector<Op>;

// fill(x): F0..F(x-1), then for m = 0..M-1: B(m) and the next F if one is left. x is clipped to
// 1..M.
Order fill_order(int micro_batches, int in_flight);
// 1F1B over groups of k micro-batches, each group replaced by its members. The last group may be
// smaller.
Order kfkb_order(int stages, int stage, int micro_batches, int k);
// The order of a legal plan on one stage: that of kFkB if the caps are min(M, k(S-s)), else
// fill(cap). GPipe is fill(M).
Order order_of(const Schedule& schedule, int stages, int stage, int micro_batches);

// Ops of this step that a stage has started and done. Counts are enough, because F and B each run
// in micro-batch order (invariant I1).
struct StageProgress {
  int forwards_started = 0;
  int forwards_done = 0;
  int backwards_started = 0;
  int backwards_done = 0;
  int in_flight() const { return forwards_started - backwards_done; }
};

// Ops that could start now: the input has arrived and a send slot for the result is free (invariant
// I3).
struct Ready {
  bool forward = false;   // F of micro-batch forwards_started
  bool backward = false;  // B of micro-batch backwards_started
};

// Chooses the next op of one stage under one plan.
class Dispatcher {
 public:
  Dispatcher(const Schedule& schedule, int stages, int stage, int micro_batches);
  // Runs the given order with Strict dispatch; the cap is the order's own peak. For baselines that
  // are not plans.
  explicit Dispatcher(Order order);

  // Returns the op to start now, or nothing. Strict: the next op of the order if it is ready. Hint:
  // the next F if it is ready and fewer than cap are in flight, else the next B if it is ready.
  // Never returns an op beyond the cap (worker/schedule/README.md "Dispatch"). O(1).
  std::optional<Op> next_op(const StageProgress& progress, const Ready& ready) const;
  // The op that a waiting stage would start first, ready or not. Nothing if the step is over.
  std::optional<Op> wanted(const StageProgress& progress) const;
  bool done(const StageProgress& progress) const {
    return progress.backwards_done == micro_batches_;
  }
  int cap() const { return cap_; }
  int micro_batches() const { return micro_batches_; }

 private:
  Dispatch dispatch_;
  int micro_batches_;
  int cap_;
  Order order_;
};

}  // namespace weir::schedule
