// SPDX-License-Identifier: Apache-2.0
// One clock for the records of several ranks, for drawing only. A tensor arrives after it was
// handed over, and is acknowledged after it has arrived, so messages between two neighbouring
// stages bound the difference of their clocks from both sides; the point of that interval nearest
// to the difference of the wall clocks is taken. So nothing arrives before it was sent. Replicas
// are tied by the wall clocks of their first stages. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "worker/timeline/record.h"

namespace weir::timeline {

// A tensor: replica, stage that receives it, direction, step, micro-batch.
using TensorKey = std::tuple<int, int, Direction, std::uint32_t, std::uint16_t>;
struct Tensor {
  const Event* sent = nullptr;      // null: not in the records
  const Event* received = nullptr;  // likewise
};
// The keys are sorted, so that tensors of a link lie side by side. The records outlive the result.
std::map<TensorKey, Tensor> tensors_of(std::span<const RankRecord> records);

struct Alignment {
  std::vector<std::int64_t> shift;  // of each record: common time = own time + shift, nanoseconds
  // Half of the widest interval between two neighbours, nanoseconds; 0 where no message bounds one.
  std::int64_t half_width = 0;
  // Neighbours without a message in both records, and those whose messages contradict each other:
  // their clocks run at different speeds.
  int unbounded = 0, contradictions = 0;
};

// One record a place (belong_together). O(n log n) in the events.
Alignment align(std::span<const RankRecord> records, const std::map<TensorKey, Tensor>& tensors);

}  // namespace weir::timeline
