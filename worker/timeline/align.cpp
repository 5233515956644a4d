// SPDX-License-Identifier: Apache-2.0
#include "worker/timeline/align.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace weir::timeline {
namespace {

// Bounds of (clock of the later stage - clock of the earlier stage).
struct Bounds {
  std::int64_t low = std::numeric_limits<std::int64_t>::min();
  std::int64_t high = std::numeric_limits<std::int64_t>::max();
  // The clock of the receiver - that of the sender lies between these two.
  void add(std::int64_t least, std::int64_t most, Direction direction) {
    const bool forward = direction == Direction::kForward;
    low = std::max(low, forward ? least : -most);
    high = std::min(high, forward ? most : -least);
  }
};

}  // namespace

std::map<TensorKey, Tensor> tensors_of(std::span<const RankRecord> records) {
  std::map<TensorKey, Tensor> tensors;
  for (const RankRecord& record : records) {
    for (const Event& event : record.events) {
      const bool sent = event.kind == EventKind::kSent;
      if (!sent && event.kind != EventKind::kReceived) continue;
      const auto direction = static_cast<Direction>(event.detail);
      const int step = direction == Direction::kForward ? 1 : -1;
      const int receiver = sent ? record.stage + step : record.stage;
      if (receiver < 0 || receiver >= record.stages) continue;
      Tensor& tensor =
          tensors[{record.replica, receiver, direction, event.step, event.micro_batch}];
      (sent ? tensor.sent : tensor.received) = &event;
    }
  }
  return tensors;
}

Alignment align(std::span<const RankRecord> records, const std::map<TensorKey, Tensor>& tensors) {
  std::map<std::pair<int, int>, Bounds> bounds;  // by replica and earlier stage
  for (const auto& [key, tensor] : tensors) {
    if (tensor.sent == nullptr || tensor.received == nullptr) continue;
    const auto& [replica, receiver, direction, step, micro_batch] = key;
    const int earlier = direction == Direction::kForward ? receiver - 1 : receiver;
    bounds[{replica, earlier}].add(tensor.received->end - tensor.sent->end,
                                   tensor.received->end - tensor.sent->begin, direction);
  }

  std::map<std::pair<int, int>, std::size_t> record_at;
  for (std::size_t i = 0; i < records.size(); ++i) {
    record_at[{records[i].replica, records[i].stage}] = i;
  }
  Alignment result;
  result.shift.resize(records.size());
  for (const auto& [place, index] : record_at) {  // the earlier stages first
    const RankRecord& record = records[index];
    result.shift[index] = record.wall_less_own;
    const auto before = record_at.find({place.first, place.second - 1});
    if (before == record_at.end()) continue;
    constexpr std::int64_t kMost = 2 * kLongestTime;
    const std::int64_t by_wall =  // later - earlier clock
        std::clamp(records[before->second].wall_less_own - record.wall_less_own, -kMost, kMost);
    const auto found = bounds.find({place.first, place.second - 1});
    std::int64_t difference = by_wall;
    if (found == bounds.end()) {
      ++result.unbounded;
    } else if (const auto [low, high] = found->second; low <= high) {
      difference = std::clamp(by_wall, low, high);
      result.half_width = std::max(result.half_width, (high - low) / 2);
    } else {
      difference = low + (high - low) / 2;
      ++result.contradictions;
    }
    result.shift[index] =
        std::clamp(result.shift[before->second] - difference, -kMostWallLessOwn, kMostWallLessOwn);
  }
  return result;
}

}  // namespace weir::timeline
