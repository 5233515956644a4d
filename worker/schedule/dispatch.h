// SPDX-License-Identifier: Apache-2.0
// The only code that orders work: the engine, the simulator and the planner all call next_op
// (worker/schedule/README.md "Dispatch").
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

// The order of one stage: M forwards and M backwards, each kind in rising order of micro-batch.
using Order = std::vector<Op>;

// fill(x): F0..F(x-1); then for m = 0..M-1: B(m), next F if any is left. x is clipped to 1..M.
Order fill_order(int micro_batches, int in_flight);
// 1F1B over groups of k, each item replaced by its members (ragged tail allowed).
Order kfkb_order(int stages, int stage, int micro_batches, int k);
// The order of a legal plan on one stage: kFkB's if the caps are min(M, k(S-s)), else fill(cap);
// GPipe: fill(M).
Order order_of(const Schedule& schedule, int stages, int stage, int micro_batches);

// What a stage has done in this step. Counts only: F and B run in micro-batch order (I1).
struct StageProgress {
  int forwards_started = 0;
  int forwards_done = 0;
  int backwards_started = 0;
  int backwards_done = 0;
  int in_flight() const { return forwards_started - backwards_done; }
};

// Which ops could start now: input there, and a send slot for the result (I3).
struct Ready {
  bool forward = false;   // of micro-batch forwards_started
  bool backward = false;  // of micro-batch backwards_started
};

// A stage's rule: fixed for one plan and stage, cheap to ask.
class Dispatcher {
 public:
  Dispatcher(const Schedule& schedule, int stages, int stage, int micro_batches);
  // Strict in a given order, whose own peak is the cap: baselines that are no plan.
  explicit Dispatcher(Order order);

  // The op to start now, or nothing. Strict: the next op of the order if it is ready. Hint: next F
  // if ready and in flight < cap, else next B if ready. Never an op beyond the cap
  // (worker/schedule/README.md "Dispatch"). O(1).
  std::optional<Op> next_op(const StageProgress& progress, const Ready& ready) const;
  // What a waiting stage waits for: the op it would start first. Nothing when the step is over.
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
