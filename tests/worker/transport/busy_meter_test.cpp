// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/busy_meter.h"

#include <gtest/gtest.h>

#include "worker/transport/link_stats.h"

namespace weir::transport {
namespace busy_meter_test {

using namespace std::chrono_literals;
using Time = std::chrono::steady_clock::time_point;

Time at(std::chrono::nanoseconds time) {
  return Time(100s) + time;
}

BusyMeter::Message message(std::int64_t bytes, std::int64_t first_bytes,
                           std::chrono::nanoseconds first, std::chrono::nanoseconds last) {
  return {.bytes = bytes, .first_bytes = first_bytes, .first = at(first), .last = at(last)};
}

TEST(BusyMeter, ScalesTheFirstReadAwayAfterAPause) {
  BusyMeter meter;

  // 1/8 came with the first read, the rest in 70 ms: the whole message needed 80 ms.
  const Arrival arrival = meter.add(message(800, 100, 10ms, 80ms));

  EXPECT_EQ(arrival.counted_bytes, 800);
  EXPECT_EQ(arrival.busy, 80ms);
}

TEST(BusyMeter, CountsFromTheMessageBeforeWhenBackToBack) {
  BusyMeter meter;
  meter.add(message(800, 100, 0ms, 70ms));

  const Arrival arrival = meter.add(message(800, 100, 70ms + 500us, 150ms));

  EXPECT_EQ(arrival.counted_bytes, 800);
  EXPECT_EQ(arrival.busy, 80ms);
}

TEST(BusyMeter, APauseOfAMillisecondIsNotBackToBack) {
  BusyMeter meter;
  meter.add(message(800, 100, 0ms, 70ms));

  EXPECT_EQ(meter.add(message(800, 100, 71ms, 141ms)).busy, 80ms);
}

TEST(BusyMeter, ForShortMessagesOnlyATenthOfTheirTimeIsBackToBack) {
  BusyMeter close;
  close.add(message(1000, 0, 0ms, 1ms));
  BusyMeter apart;
  apart.add(message(1000, 0, 0ms, 1ms));

  EXPECT_EQ(close.add(message(1000, 0, 1050us, 2050us)).busy, 1050us);
  EXPECT_EQ(apart.add(message(1000, 0, 1150us, 2150us)).busy, 1ms);
}

TEST(BusyMeter, AMessageInOnePieceSaysNothing) {
  BusyMeter meter;
  meter.add(message(800, 100, 0ms, 70ms));

  const Arrival whole = meter.add(message(800, 800, 90ms, 90ms));
  const Arrival most = meter.add(message(800, 401, 190ms, 191ms));
  const Arrival nothing = meter.add(message(0, 0, 290ms, 290ms));

  for (const Arrival& arrival : {whole, most, nothing}) {
    EXPECT_EQ(arrival.counted_bytes, 0);
    EXPECT_EQ(arrival.busy, 0ns);
  }
}

TEST(BusyMeter, ALateReceiverOrAnIdleLinkDoesNotCount) {
  BusyMeter meter;
  Arrival sum;
  for (int i = 0; i < 10; ++i) {  // 10 ms of transfer every second
    const auto start = i * 1s;
    const Arrival arrival = meter.add(message(1000, 125, start + 1250us, start + 10ms));
    sum.counted_bytes += arrival.counted_bytes;
    sum.busy += arrival.busy;
  }

  EXPECT_EQ(sum.counted_bytes, 10'000);
  EXPECT_EQ(sum.busy, 100ms);
}

TEST(LinkCounters, PutsATransferIntoItsBucket) {
  LinkCounters counters;
  count_transfer(counters, 10, 100us);
  count_transfer(counters, 20, 100us + 1ns);
  count_transfer(counters, 30, 1h);
  count_transfer(counters, 0, 0ns);

  EXPECT_EQ(counters.transfers, 4);
  EXPECT_EQ(counters.bytes, 60);
  EXPECT_EQ(counters.busy, 1h + 200us + 1ns);
  EXPECT_EQ(counters.histogram[0], 1);
  EXPECT_EQ(counters.histogram[1], 1);
  EXPECT_EQ(counters.histogram[kTransferBuckets - 1], 1);
}

TEST(RoundTrips, KeepsTheSmallestOfTheLastSixteen) {
  RoundTrips trips;
  EXPECT_EQ(trips.smallest_seconds(), 0);

  trips.add(1ms);
  for (int i = 0; i < 15; ++i) trips.add(5ms);
  EXPECT_DOUBLE_EQ(trips.smallest_seconds(), 0.001);

  trips.add(4ms);
  EXPECT_DOUBLE_EQ(trips.smallest_seconds(), 0.004);
}

}  // namespace busy_meter_test
}  // namespace weir::transport
