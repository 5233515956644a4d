// SPDX-License-Identifier: Apache-2.0
#include "worker/timeline/align.h"

#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/timeline/records.h"
#include "worker/timeline/chrome_trace.h"

namespace weir::timeline {
namespace align_test {

using test::kMs;
using test::two_stages;

Alignment aligned(const std::vector<RankRecord>& records) {
  return align(records, tensors_of(records));
}

// The clocks differ by 5 s, and the wall clock of stage 1 by up to 5 s more. Messages bound the
// difference to within 1 ms of the truth.
TEST(Align, FindsClocksThatAreSecondsApart) {
  for (const std::int64_t ahead : {-5000 * kMs, std::int64_t{0}, 5000 * kMs}) {
    for (const std::int64_t error : {-5000 * kMs, std::int64_t{0}, 5000 * kMs}) {
      const Alignment found = aligned(two_stages(ahead, error));
      const std::int64_t off = found.shift[0] - found.shift[1] - ahead;
      EXPECT_LE(std::abs(off), kMs) << ahead << " " << error;
      EXPECT_EQ(found.half_width, kMs);
      EXPECT_EQ(found.unbounded, 0);
      EXPECT_EQ(found.contradictions, 0);
    }
  }
}

TEST(Align, TakesTheWallClocksWhereTheMessagesAllowThem) {
  const Alignment found = aligned(two_stages(70 * kMs, kMs / 2));
  EXPECT_EQ(found.shift[0] - found.shift[1], 70 * kMs - kMs / 2);
}

TEST(Align, NothingArrivesBeforeItWasSent) {
  for (const std::int64_t error : {-900 * kMs, -kMs, kMs, 900 * kMs}) {
    const auto records = two_stages(33 * kMs, error);
    const Alignment found = aligned(records);
    for (const auto& [key, tensor] : tensors_of(records)) {
      const std::size_t to = static_cast<std::size_t>(std::get<1>(key));
      EXPECT_GE(tensor.received->end + found.shift[to], tensor.sent->begin + found.shift[1 - to]);
      EXPECT_LE(tensor.received->end + found.shift[to], tensor.sent->end + found.shift[1 - to]);
    }
  }
}

TEST(Align, FallsBackToTheWallClocksWithoutMessages) {
  auto records = two_stages(70 * kMs, 4 * kMs);
  records[1].events.clear();
  const Alignment found = aligned(records);
  EXPECT_EQ(found.unbounded, 1);
  EXPECT_EQ(found.shift[1], records[1].wall_less_own);
}

TEST(Align, CountsMessagesThatContradictEachOther) {
  auto records = two_stages();
  records[1].events[0].end = 2 * kMs;  // received long before it was sent
  records[1].events[0].begin = kMs;
  EXPECT_EQ(aligned(records).contradictions, 1);
}

// The sanitizers watch.
TEST(Align, ClocksThatNoMachineHasDoNotOverflow) {
  std::vector<RankRecord> records;
  for (int stage = 0; stage < 12; ++stage) {
    RankRecord record{.stage = stage, .stages = 12};
    record.wall_less_own = stage % 2 == 0 ? kMostWallLessOwn : -kMostWallLessOwn;
    const auto forward = [](EventKind kind, std::int64_t at) {
      return test::tensor(kind, Direction::kForward, 0, at, at);
    };
    record.events = {forward(EventKind::kReceived, -kLongestTime),
                     forward(EventKind::kSent, kLongestTime)};
    records.push_back(record);
  }
  EXPECT_EQ(aligned(records).shift.size(), 12U);
  EXPECT_FALSE(chrome_trace(records).empty());
}

}  // namespace align_test
}  // namespace weir::timeline
