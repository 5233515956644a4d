// SPDX-License-Identifier: Apache-2.0
// Orders of worker/schedule/README.md "Notation". kFkB is built as in TePDist's task scheduler:
// 1F1B over groups, each item replaced by its members.
#include <algorithm>
#include <chrono>
#include <vector>

#include "worker/base/check.h"
#include "worker/schedule/caps.h"
#include "worker/schedule/dispatch.h"
#include "worker/schedule/simulator.h"

namespace weir::schedule {

Order fill_order(int micro_batches, int in_flight) {
  WEIR_CHECK(micro_batches >= 1, "a step has micro-batches");
  const int warm_up = std::clamp(in_flight, 1, micro_batches);
  Order order;
  order.reserve(2 * static_cast<std::size_t>(micro_batches));
  for (int m = 0; m < warm_up; ++m) order.push_back({OpKind::kForward, m});
  for (int m = 0; m < micro_batches; ++m) {
    order.push_back({OpKind::kBackward, m});
    if (m + warm_up < micro_batches) order.push_back({OpKind::kForward, m + warm_up});
  }
  return order;
}

Order kfkb_order(int stages, int stage, int micro_batches, int k) {
  WEIR_CHECK(stage >= 0 && stage < stages, "the stage exists");
  WEIR_CHECK(k >= 1, "a group has members");
  const int groups = (micro_batches + k - 1) / k;
  Order order;
  order.reserve(2 * static_cast<std::size_t>(micro_batches));
  for (const Op& item : fill_order(groups, stages - stage)) {
    const int first = item.micro_batch * k;
    const int end = std::min(micro_batches, first + k);  // the last group may be smaller
    for (int m = first; m < end; ++m) order.push_back({item.kind, m});
  }
  return order;
}

std::vector<Order> strict_split_orders(const Schedule& schedule, int micro_batches) {
  constexpr std::chrono::nanoseconds kOp{1};
  const StageTime equal{.forward = kOp, .backward_input = kOp, .backward_weights = kOp};
  const std::size_t count = schedule.caps.size();
  const PipelineModel model{.stages = std::vector<StageTime>(count, equal),
                            .forward = std::vector<LinkModel>(count - 1),
                            .backward = std::vector<LinkModel>(count - 1)};
  return split_orders(schedule, micro_batches, model);
}

Order order_of(const Schedule& schedule, int stages, int stage, int micro_batches) {
  WEIR_CHECK(static_cast<int>(schedule.caps.size()) == stages, "one cap per stage");
  WEIR_CHECK(stage >= 0 && stage < stages, "the stage exists");
  const auto index = static_cast<std::size_t>(stage);
  if (schedule.split) return strict_split_orders(schedule, micro_batches)[index];
  // GPipe's caps are M on every stage, for which fill(cap) is fill(M).
  const int k = k_of_caps(schedule.caps);
  if (schedule.caps == kfkb_caps(stages, micro_batches, k)) {
    return kfkb_order(stages, stage, micro_batches, k);
  }
  return fill_order(micro_batches, schedule.caps[index]);
}

}  // namespace weir::schedule
