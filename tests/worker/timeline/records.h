// SPDX-License-Identifier: Apache-2.0
// Records of a made-up job, for the tests of this room.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/schedule/dispatch.h"
#include "worker/timeline/record.h"

namespace weir::timeline::test {

inline constexpr std::int64_t kMs = 1'000'000;

inline Event op(schedule::OpKind kind, int micro_batch, std::int64_t begin, std::int64_t end,
                std::uint32_t step = 7) {
  return {.begin = begin,
          .end = end,
          .step = step,
          .micro_batch = static_cast<std::uint16_t>(micro_batch),
          .kind = EventKind::kOp,
          .detail = static_cast<std::uint8_t>(kind)};
}
inline Event tensor(EventKind kind, Direction direction, int micro_batch, std::int64_t begin,
                    std::int64_t end, std::uint32_t step = 7) {
  return {.begin = begin,
          .end = end,
          .step = step,
          .micro_batch = static_cast<std::uint16_t>(micro_batch),
          .kind = kind,
          .detail = static_cast<std::uint8_t>(direction)};
}

// Two stages and one micro-batch: F0 on both, B0 on both, a link of 2 ms each way. The clock of
// stage 1 shows `ahead` more, and its wall clock is wrong by `wall_error`.
inline std::vector<RankRecord> two_stages(std::int64_t ahead = 0, std::int64_t wall_error = 0) {
  using schedule::OpKind;
  RankRecord first{.job = "demo/gpt", .pod = "gpt-w-0", .node = "n0", .stages = 2, .revision = 1};
  first.wall_less_own = 1000 * kMs;
  first.events = {op(OpKind::kForward, 0, 10 * kMs, 20 * kMs),
                  tensor(EventKind::kSent, Direction::kForward, 0, 19 * kMs, 22 * kMs),
                  tensor(EventKind::kReceived, Direction::kBackward, 0, 40 * kMs, 42 * kMs),
                  op(OpKind::kBackward, 0, 43 * kMs, 60 * kMs)};
  RankRecord second = first;
  second.pod = "gpt-w-1";
  second.node = "n1";
  second.stage = 1;
  second.wall_less_own = 1000 * kMs - ahead + wall_error;
  second.events = {tensor(EventKind::kReceived, Direction::kForward, 0, 19 * kMs, 21 * kMs),
                   op(OpKind::kForward, 0, 22 * kMs, 30 * kMs),
                   op(OpKind::kBackward, 0, 30 * kMs, 40 * kMs),
                   tensor(EventKind::kSent, Direction::kBackward, 0, 39 * kMs, 43 * kMs)};
  for (Event& event : second.events) {
    event.begin += ahead;
    event.end += ahead;
  }
  return {first, second};
}

}  // namespace weir::timeline::test
