// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/dispatch.h"

#include <algorithm>
#include <utility>

#include "worker/base/check.h"

namespace weir::schedule {

Dispatcher::Dispatcher(const Schedule& schedule, int stages, int stage, int micro_batches)
    : dispatch_(schedule.dispatch), micro_batches_(micro_batches) {
  WEIR_CHECK(micro_batches >= 1, "a step has micro-batches");
  WEIR_CHECK(static_cast<int>(schedule.caps.size()) == stages, "one cap per stage");
  WEIR_CHECK(stage >= 0 && stage < stages, "the stage exists");
  cap_ = std::clamp(schedule.caps[static_cast<std::size_t>(stage)], 1, micro_batches);
  // Hint runs fill(cap) as soon as ops are ready, for which the counts of StageProgress suffice.
  if (dispatch_ == Dispatch::kStrict) order_ = order_of(schedule, stages, stage, micro_batches);
}

Dispatcher::Dispatcher(Order order)
    : dispatch_(Dispatch::kStrict),
      micro_batches_(static_cast<int>(order.size() / 2)),
      cap_(1),
      order_(std::move(order)) {
  int forwards = 0, backwards = 0;
  for (const Op& op : order_) {
    int& count = op.kind == OpKind::kForward ? forwards : backwards;
    WEIR_CHECK(op.micro_batch == count, "each kind rises by one from 0");
    ++count;
    cap_ = std::max(cap_, forwards - backwards);
  }
  WEIR_CHECK(forwards == backwards, "as many backwards as forwards");
}

std::optional<Op> Dispatcher::wanted(const StageProgress& progress) const {
  if (dispatch_ == Dispatch::kStrict) {
    const auto next = static_cast<std::size_t>(progress.forwards_started) +
                      static_cast<std::size_t>(progress.backwards_started);
    if (next >= order_.size()) return std::nullopt;
    return order_[next];
  }
  if (progress.forwards_started < micro_batches_ && progress.in_flight() < cap_) {
    return Op{OpKind::kForward, progress.forwards_started};
  }
  if (progress.backwards_started < micro_batches_) {
    return Op{OpKind::kBackward, progress.backwards_started};
  }
  return std::nullopt;
}

std::optional<Op> Dispatcher::next_op(const StageProgress& progress, const Ready& ready) const {
  const std::optional<Op> first = wanted(progress);
  if (!first) return std::nullopt;
  if (first->kind == OpKind::kForward) {
    if (ready.forward && progress.in_flight() < cap_) return first;
    const bool may_go_on = dispatch_ == Dispatch::kHint && ready.backward &&
                           progress.backwards_started < progress.forwards_started;
    if (may_go_on) return Op{OpKind::kBackward, progress.backwards_started};
    return std::nullopt;
  }
  return ready.backward ? first : std::nullopt;
}

}  // namespace weir::schedule
