// SPDX-License-Identifier: Apache-2.0
// Decides in which order a stage runs its ops. Nothing else does: the engine, the simulator and the
// planner all call next_op (worker/schedule/README.md "Dispatch").
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "worker/schedule/plan.h"

namespace weir::schedule {

// With a split backward kBackward is the gradient of the input, and kWeights runs, too.
enum class OpKind : unsigned char { kForward, kBackward, kWeights };
inline constexpr std::size_t kOpKinds = 3;

struct Op {
  OpKind kind = OpKind::kForward;
  int micro_batch = 0;
  bool operator==(const Op&) const = default;
};

// The order of ops on one stage: M of each kind that the step has, each by rising micro-batch.
using Order = std::vector<Op>;

// fill(x): F0..F(x-1), then for m = 0..M-1: B(m) and the next F if one is left. x is clipped to
// 1..M.
Order fill_order(int micro_batches, int in_flight);
// 1F1B over groups of k micro-batches, each group replaced by its members. The last group may be
// smaller.
Order kfkb_order(int stages, int stage, int micro_batches, int k);
// The order of a legal plan on one stage: that of kFkB if the caps are min(M, k(S-s)), else
// fill(cap). GPipe is fill(M). With a split backward: that of split_orders (simulator.h) on equal
// stages whose ops all take the same time, and links that take none.
Order order_of(const Schedule& schedule, int stages, int stage, int micro_batches);
// The same for all stages at once, with a split backward.
std::vector<Order> strict_split_orders(const Schedule& schedule, int micro_batches);

// Ops of this step that a stage has started and done. Counts are enough, because F, B and W each
// run in micro-batch order (invariant I1). Without a split backward there is no W.
struct StageProgress {
  int forwards_started = 0;
  int forwards_done = 0;
  int backwards_started = 0;
  int backwards_done = 0;
  int weights_started = 0;
  int weights_done = 0;
  int in_flight() const { return forwards_started - backwards_done; }
  int held() const { return forwards_started - weights_done; }  // split backward
  int pending() const { return backwards_done - weights_started; }
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
  // With a split backward F also needs room below the cap of held micro-batches, and else a pending
  // W may run (worker/schedule/README.md "Dispatch", "Split backward"). Never returns an op beyond
  // a cap. O(1).
  std::optional<Op> next_op(const StageProgress& progress, const Ready& ready) const;
  // The op that a waiting stage would start first, ready or not: never a W with Hint, which nobody
  // sends. Nothing if the step is over, or only W are left.
  std::optional<Op> wanted(const StageProgress& progress) const;
  bool done(const StageProgress& progress) const {
    return (splits_ ? progress.weights_done : progress.backwards_done) == micro_batches_;
  }
  bool splits() const { return splits_; }
  int cap() const { return cap_; }
  int held_cap() const { return held_cap_; }  // equal to cap() if backwards are whole
  int micro_batches() const { return micro_batches_; }

 private:
  bool may_start_forward(const StageProgress& progress) const;
  bool is_time_for_weights(const StageProgress& progress, const Ready& ready) const;

  Dispatch dispatch_;
  int micro_batches_;
  bool splits_ = false;
  int cap_, held_cap_, postponed_ = 0;
  Order order_;
};

}  // namespace weir::schedule
