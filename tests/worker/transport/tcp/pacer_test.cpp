// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/pacer.h"

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace weir::transport::tcp {
namespace pacer_test {

using namespace std::chrono_literals;
using Time = Pacer::Time;

const Time kStart{1000s};

Pacing rate(double bytes_per_second) {
  return {.bytes_per_second = bytes_per_second};
}

// Sends a message of `bytes` that is first in the queue at `now`; returns when its last byte
// leaves.
Time last_byte(Pacer& pacer, Time now, std::size_t bytes) {
  pacer.begin(now, bytes);
  Pacer::Chunk chunk;
  for (std::size_t left = bytes; left > 0; left -= chunk.bytes) chunk = pacer.next();
  return chunk.at;
}

TEST(Pacer, LastByteLeavesAtStartPlusBytesOverRate) {
  Pacer pacer(rate(1e6), kStart);

  EXPECT_EQ(last_byte(pacer, kStart, 10'000), kStart + 10ms);
}

TEST(Pacer, SendsEightChunksAndNoBurst) {
  Pacer pacer(rate(1e6), kStart);
  pacer.begin(kStart + 5s, 8000);

  for (int i = 1; i <= 8; ++i) {
    const auto chunk = pacer.next();
    EXPECT_EQ(chunk.bytes, 1000U);
    EXPECT_EQ(chunk.at, kStart + 5s + i * 1ms) << "a pause saves nothing up";
  }
}

TEST(Pacer, MessagesBackToBackFollowTheVirtualClockNotTheLateWriter) {
  Pacer pacer(rate(1e6), kStart);
  last_byte(pacer, kStart, 10'000);

  EXPECT_EQ(last_byte(pacer, kStart + 4ms, 10'000), kStart + 20ms);
}

TEST(Pacer, ChunksOfASlowLinkAreShortEnoughForHeartbeats) {
  Pacer pacer(rate(1000), kStart);
  pacer.begin(kStart, 100'000);

  EXPECT_LE(pacer.next().at, kStart + 1s);
}

TEST(Pacer, EveryByteOfAnySizeIsSentOnce) {
  Pacer pacer(rate(1e9), kStart);
  for (const std::size_t bytes : {1U, 4U, 7U, 8U, 9U, 1'000'001U}) {
    pacer.begin(kStart, bytes);
    std::size_t sum = 0;
    for (int i = 0; i < 8; ++i) sum += pacer.next().bytes;
    EXPECT_EQ(sum, bytes);
  }
}

TEST(Pacer, FollowsTheTraceInTheMiddleOfAMessage) {
  Pacing pacing = rate(1e6);
  pacing.trace = {{10ms, 0.5}, {30ms, 1.0}};
  const Pacer pacer(pacing, kStart);

  // 10 ms at the full rate, 20 ms at half of it, 5 ms at the full rate.
  EXPECT_EQ(pacer.finish(kStart, 25'000), kStart + 35ms);
  EXPECT_EQ(pacer.finish(kStart + 10ms, 5'000), kStart + 20ms);
  EXPECT_EQ(pacer.finish(kStart + 1s, 1'000), kStart + 1001ms);
}

TEST(PaceTrace, IsReadWithComments) {
  const weir::test::TempDir dir;
  const auto path = dir.file("trace", "# preempted from 10 s on\n0 1\n\n10.5 0.25 # a quarter\n");

  const auto trace = read_pace_trace(path);

  ASSERT_TRUE(trace);
  ASSERT_EQ(trace->size(), 2U);
  EXPECT_EQ((*trace)[1].first, 10500ms);
  EXPECT_DOUBLE_EQ((*trace)[1].second, 0.25);
}

TEST(PaceTrace, NamesTheLineThatIsWrong) {
  const weir::test::TempDir dir;
  const auto reason = [&](const std::string& text) {
    const auto trace = read_pace_trace(dir.file("trace", text));
    return trace ? "" : trace.error().message.substr(dir.path().string().size() + 1);
  };

  EXPECT_EQ(reason("0 1\nten 0.5\n"), "trace:2: not 'time-seconds share'");
  EXPECT_EQ(reason("0 0\n"), "trace:1: share is not in (0, 1]");
  EXPECT_EQ(reason("0 1.5\n"), "trace:1: share is not in (0, 1]");
  EXPECT_EQ(reason("-1 1\n"), "trace:1: time is below 0 or too large");
  EXPECT_EQ(reason("5 1\n5 0.5\n"), "trace:2: times do not rise");
  EXPECT_EQ(reason("5 1 x\n"), "trace:1: something after the share: x");
  const auto missing = read_pace_trace("/nonexistent/trace");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message,
            "/nonexistent/trace: cannot be read: No such file or directory");
}

}  // namespace pacer_test
}  // namespace weir::transport::tcp
