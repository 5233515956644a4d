// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/dispatch.h"

#include <algorithm>
#include <array>
#include <utility>

#include "worker/base/check.h"

namespace weir::schedule {

Dispatcher::Dispatcher(const Schedule& schedule, int stages, int stage, int micro_batches)
    : dispatch_(schedule.dispatch),
      micro_batches_(micro_batches),
      splits_(schedule.split.has_value()) {
  WEIR_CHECK(micro_batches >= 1, "a step has micro-batches");
  WEIR_CHECK(static_cast<int>(schedule.caps.size()) == stages, "one cap per stage");
  WEIR_CHECK(stage >= 0 && stage < stages, "the stage exists");
  const auto index = static_cast<std::size_t>(stage);
  cap_ = held_cap_ = std::clamp(schedule.caps[index], 1, micro_batches);
  if (splits_) {
    WEIR_CHECK(schedule.split->held.size() == schedule.caps.size() &&
                   schedule.split->postponed.size() == schedule.caps.size(),
               "a split backward has values for every stage");
    held_cap_ = std::clamp(schedule.split->held[index], 1, micro_batches);
    postponed_ = schedule.split->postponed[index];
  }
  // Hint runs as soon as ops are ready, for which the counts of StageProgress suffice.
  if (dispatch_ == Dispatch::kStrict) order_ = order_of(schedule, stages, stage, micro_batches);
}

Dispatcher::Dispatcher(Order order)
    : dispatch_(Dispatch::kStrict), cap_(1), held_cap_(1), order_(std::move(order)) {
  std::array<int, kOpKinds> counts{};
  const auto count = [&](OpKind kind) -> int& { return counts[static_cast<std::size_t>(kind)]; };
  for (const Op& op : order_) {
    WEIR_CHECK(op.micro_batch == count(op.kind), "each kind rises by one from 0");
    ++count(op.kind);
    WEIR_CHECK(count(OpKind::kWeights) <= count(OpKind::kBackward), "weights follow their input");
    cap_ = std::max(cap_, count(OpKind::kForward) - count(OpKind::kBackward));
    held_cap_ = std::max(held_cap_, count(OpKind::kForward) - count(OpKind::kWeights));
  }
  micro_batches_ = count(OpKind::kForward);
  splits_ = count(OpKind::kWeights) > 0;
  if (!splits_) held_cap_ = cap_;
  WEIR_CHECK(count(OpKind::kForward) == count(OpKind::kBackward), "as many backwards as forwards");
  WEIR_CHECK(!splits_ || count(OpKind::kWeights) == micro_batches_, "as many weights, or none");
}

bool Dispatcher::may_start_forward(const StageProgress& progress) const {
  return progress.forwards_started < micro_batches_ && progress.in_flight() < cap_ &&
         (!splits_ || progress.held() < held_cap_);
}

// A pending W runs if more are pending than the stage may postpone, if only memory stops a forward,
// or if nothing else is left.
bool Dispatcher::is_time_for_weights(const StageProgress& progress, const Ready& ready) const {
  if (!splits_ || progress.pending() == 0) return false;
  return progress.pending() > postponed_ || (ready.forward && progress.held() >= held_cap_) ||
         progress.backwards_done == micro_batches_;
}

std::optional<Op> Dispatcher::wanted(const StageProgress& progress) const {
  if (dispatch_ == Dispatch::kStrict) {
    const auto next = static_cast<std::size_t>(progress.forwards_started) +
                      static_cast<std::size_t>(progress.backwards_started) +
                      static_cast<std::size_t>(progress.weights_started);
    if (next >= order_.size()) return std::nullopt;
    return order_[next];
  }
  if (may_start_forward(progress)) return Op{OpKind::kForward, progress.forwards_started};
  if (progress.backwards_started < micro_batches_) {
    return Op{OpKind::kBackward, progress.backwards_started};
  }
  return std::nullopt;
}

std::optional<Op> Dispatcher::next_op(const StageProgress& progress, const Ready& ready) const {
  if (dispatch_ == Dispatch::kStrict) {
    const std::optional<Op> next = wanted(progress);
    if (!next) return std::nullopt;
    switch (next->kind) {
      case OpKind::kForward:
        return ready.forward && may_start_forward(progress) ? next : std::nullopt;
      case OpKind::kBackward:
        return ready.backward ? next : std::nullopt;
      case OpKind::kWeights:
        return progress.pending() > 0 ? next : std::nullopt;
    }
  }
  if (ready.forward && may_start_forward(progress)) {
    return Op{OpKind::kForward, progress.forwards_started};
  }
  if (ready.backward && progress.backwards_started < progress.forwards_started) {
    return Op{OpKind::kBackward, progress.backwards_started};
  }
  if (is_time_for_weights(progress, ready)) return Op{OpKind::kWeights, progress.weights_started};
  return std::nullopt;
}

}  // namespace weir::schedule
