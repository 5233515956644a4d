// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/train_meter.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace weir::transport {
namespace train_meter_test {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

BusyMeter::Message frame(std::int64_t bytes, std::int64_t first_bytes, nanoseconds first,
                         nanoseconds last) {
  constexpr std::chrono::steady_clock::time_point kStart(100s);
  return {
      .bytes = bytes, .first_bytes = first_bytes, .first = kStart + first, .last = kStart + last};
}

// All the frames of one phase.
Arrival sum_of(const std::vector<BusyMeter::Message>& frames) {
  TrainMeter meter;
  Arrival sum;
  bool follows = false;
  for (const auto& one : frames) {
    const Arrival news = meter.add(one, std::exchange(follows, true));
    sum.counted_bytes += news.counted_bytes;
    sum.busy += news.busy;
  }
  return sum;
}

TEST(TrainMeter, FramesInARowCountAsOneMessage) {
  const Arrival sum = sum_of(
      {frame(1000, 500, 0ms, 10ms), frame(1000, 500, 12ms, 20ms), frame(1000, 1000, 30ms, 30ms)});

  EXPECT_EQ(sum.counted_bytes, 3000);
  EXPECT_EQ(sum.busy, 36ms);  // 2500 bytes came in 30 ms
}

TEST(TrainMeter, AShortFrameThatComesLateSaysNoMoreThanItsBytes) {
  // Its last byte waited 12 ms for an acknowledgement: alone, 400 bytes would stand for 16 ms.
  const Arrival sum = sum_of({frame(10'000, 1000, 0ms, 9ms), frame(400, 100, 9ms, 21ms)});

  EXPECT_EQ(sum.counted_bytes, 10'400);
  EXPECT_NEAR(static_cast<double>(sum.busy.count()), 21e6 * 10'400 / 9'400, 1);
}

TEST(TrainMeter, APauseInWhichTheSenderWaitedForAThirdBeginsAnother) {
  const Arrival sum = sum_of({frame(1000, 100, 0ms, 9ms), frame(1000, 100, 100ms, 109ms)});

  EXPECT_EQ(sum.counted_bytes, 2000);
  EXPECT_EQ(sum.busy, 20ms);
}

TEST(TrainMeter, WhatWasThereBeforeTheReceiverCameSaysNothing) {
  // Two frames lay in the socket's buffer, the third came in time.
  const Arrival sum = sum_of(
      {frame(1000, 1000, 0us, 0us), frame(1000, 1000, 50us, 50us), frame(1000, 500, 80us, 5ms)});
  EXPECT_EQ(sum.counted_bytes, 0);
  EXPECT_EQ(sum.busy, 0ms);

  const Arrival later = sum_of(
      {frame(1000, 1000, 0us, 0us), frame(1000, 500, 50us, 5ms), frame(2000, 100, 5ms, 25ms)});
  EXPECT_EQ(later.counted_bytes, 4000);
  EXPECT_EQ(later.busy, 40ms);  // 2500 bytes in 25 ms
}

TEST(TrainMeter, AnotherPhaseIsAnotherTrain) {
  TrainMeter meter;
  EXPECT_EQ(meter.add(frame(1000, 100, 0ms, 9ms), false).busy, 10ms);

  EXPECT_EQ(meter.add(frame(1000, 100, 10ms, 28ms), false).busy, 20ms);
}

TEST(TrainMeter, EmptyFramesAreNoTrain) {
  TrainMeter meter;
  meter.add(frame(1000, 100, 0ms, 9ms), false);
  EXPECT_EQ(meter.add(frame(0, 0, 0ms, 0ms), true).counted_bytes, 0);

  EXPECT_EQ(meter.add(frame(1000, 500, 10ms, 19ms), true).counted_bytes, 1000);
}

}  // namespace train_meter_test
}  // namespace weir::transport
