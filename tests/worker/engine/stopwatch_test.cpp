// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/stopwatch.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>

#include <gtest/gtest.h>

#include "tests/support/manual_clock.h"

namespace weir::engine {
namespace stopwatch_test {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

class StopwatchTest : public testing::Test {
 protected:
  static nanoseconds of(const PartTimes& times, StepPart part) {
    return times[static_cast<std::size_t>(part)];
  }
  static nanoseconds sum(const PartTimes& times) {
    return std::accumulate(times.begin(), times.end(), nanoseconds(0));
  }

  weir::test::ManualClock clock;
  Recorder recorder;
  Stopwatch watch{clock, recorder};
};

TEST_F(StopwatchTest, BooksAllTimeToThePartsThatEnd) {
  clock.advance(2ms);
  EXPECT_EQ(watch.lap(StepPart::kOther), 2ms);
  clock.advance(5ms);
  EXPECT_EQ(watch.lap(StepPart::kForward), 5ms);
  EXPECT_EQ(watch.last(), clock.now());
  clock.advance(1ms);
  watch.lap(StepPart::kOther);

  const PartTimes times = watch.take();
  EXPECT_EQ(of(times, StepPart::kForward), 5ms);
  EXPECT_EQ(of(times, StepPart::kOther), 3ms);
  EXPECT_EQ(sum(times), 8ms);
  EXPECT_EQ(sum(watch.take()), 0ms) << "taken once";
  EXPECT_DOUBLE_EQ(recorder.read().seconds_of(StepPart::kOther), 0.003) << "a counter goes on";
}

// A piece with activations and a full window, then one with neither input.
TEST_F(StopwatchTest, BooksAWaitByTheOpThatFollowsIt) {
  for (const bool forward : {true, false}) {
    clock.advance(3ms);
    EXPECT_EQ(watch.wait_lap(true, false), 3ms);
    clock.advance(1ms);
    watch.lap(StepPart::kOther);
    clock.advance(4ms);
    watch.wait_lap(false, false);
    EXPECT_EQ(watch.settle(forward, std::nullopt, std::nullopt), 7ms);
    EXPECT_EQ(watch.settle(!forward, std::nullopt, std::nullopt), 0ms) << "nothing is left";

    const PartTimes times = watch.take();
    EXPECT_EQ(of(times, StepPart::kFullPeer), forward ? 3ms : 0ms);
    EXPECT_EQ(of(times, StepPart::kForwardLate), forward ? 4ms : 0ms);
    EXPECT_EQ(of(times, StepPart::kGradientLate), forward ? 0ms : 7ms);
    EXPECT_EQ(sum(times), 8ms);
  }
}

// Of two pieces, 0 to 10 and 12 to 20 ms, the link has carried the input from 8 to 19 ms.
TEST_F(StopwatchTest, DividesAWaitByWhatItsMessageDidMeanwhile) {
  const SteadyTime start = clock.now();
  clock.advance(10ms);
  watch.wait_lap(false, false);
  clock.advance(2ms);
  watch.lap(StepPart::kOther);
  clock.advance(8ms);
  watch.wait_lap(false, false);
  watch.settle(false, transport::Transfer{.begin = start + 8ms, .end = start + 19ms}, std::nullopt);

  const PartTimes times = watch.take();
  EXPECT_EQ(of(times, StepPart::kGradientLate), 8ms);
  EXPECT_EQ(of(times, StepPart::kGradientLink), 9ms);
  EXPECT_EQ(of(times, StepPart::kOther), 3ms) << "2 ms between the pieces, 1 ms to wake up";
  EXPECT_EQ(sum(times), 20ms);
}

// The window was full from 0 to 10 ms; the oldest result had a slot at 4 ms and was there at 9 ms.
TEST_F(StopwatchTest, DividesAWaitForRoomByTheMessageThatMadeIt) {
  for (const bool forward : {true, false}) {
    const SteadyTime start = clock.now();
    const transport::Transfer opening{.begin = start + 4ms, .end = start + 9ms};
    clock.advance(10ms);
    watch.wait_lap(forward, !forward);
    watch.settle(forward, std::nullopt, opening);

    const PartTimes times = watch.take();
    EXPECT_EQ(of(times, StepPart::kFullPeer), 4ms);
    EXPECT_EQ(of(times, StepPart::kFullLink), 5ms);
    EXPECT_EQ(of(times, StepPart::kOther), 1ms);
    EXPECT_EQ(sum(times), 10ms);
  }
}

TEST_F(StopwatchTest, BearsATransferOutsideOfItsWait) {
  const SteadyTime start = clock.now();
  clock.advance(5ms);
  watch.wait_lap(false, false);
  watch.settle(true, transport::Transfer{.begin = start - 9ms, .end = start - 2ms}, std::nullopt);
  EXPECT_EQ(of(watch.take(), StepPart::kOther), 5ms) << "it had come before";
  clock.advance(5ms);
  watch.wait_lap(false, false);
  watch.settle(true, transport::Transfer{.begin = clock.now() + 1ms, .end = clock.now() + 2ms},
               std::nullopt);
  EXPECT_EQ(of(watch.take(), StepPart::kForwardLate), 5ms);
}

TEST_F(StopwatchTest, CutsASaveOutOfTheWaitInWhichItIsCopied) {
  clock.advance(10ms);
  const SteadyTime copies = clock.now();
  clock.advance(30ms);
  watch.cut_out(StepPart::kSave, copies);
  clock.advance(5ms);
  EXPECT_EQ(watch.lap(StepPart::kVerdict), 15ms);

  const PartTimes times = watch.take();
  EXPECT_EQ(of(times, StepPart::kSave), 30ms);
  EXPECT_EQ(sum(times), 45ms);
}

// The intervals of a recorder lie side by side, also around what was cut out of a wait.
TEST_F(StopwatchTest, RecordsIntervalsThatCoverAllTime) {
  FlightRecorder flight(64);
  Stopwatch recorded(clock, recorder, &flight);
  const SteadyTime start = clock.now();
  recorded.at_step(5);
  clock.advance(10ms);
  const SteadyTime copies = clock.now();
  clock.advance(3ms);
  recorded.cut_out(StepPart::kSave, copies);
  clock.advance(2ms);
  recorded.wait_lap(false, false);
  recorded.begin_op(4);
  recorded.settle(true, transport::Transfer{.begin = start + 8ms, .end = clock.now()},
                  std::nullopt);
  const SteadyTime begins = clock.now();
  clock.advance(7ms);
  recorded.lap(StepPart::kForward);
  recorded.end_op(schedule::OpKind::kForward, begins);

  std::int64_t at = start.time_since_epoch().count(), ops = 0;
  auto events = flight.read(5, 5);
  std::ranges::sort(events, {}, &timeline::Event::begin);
  for (const timeline::Event& event : events) {
    if (event.kind == timeline::EventKind::kOp) {
      ++ops;
      EXPECT_EQ(event.end - event.begin, nanoseconds(7ms).count());
      EXPECT_EQ(event.micro_batch, 4);
      continue;
    }
    EXPECT_EQ(event.begin, at);
    at = event.end;
  }
  EXPECT_EQ(at, clock.now().time_since_epoch().count());
  EXPECT_EQ(ops, 1);
  EXPECT_EQ(of(recorded.take(), StepPart::kForwardLate), 8ms);
}

TEST_F(StopwatchTest, LeavesOutWhatWasBeforeItBeginsAnew) {
  clock.advance(10ms);
  watch.lap(StepPart::kSwitch);
  watch.wait_lap(false, false);
  clock.advance(10ms);
  watch.restart();
  clock.advance(1ms);
  watch.lap(StepPart::kSwitch);
  watch.settle(true, std::nullopt, std::nullopt);

  EXPECT_EQ(sum(watch.take()), 1ms);
}

TEST_F(StopwatchTest, TakesAlsoAWaitOfWhichNoOpFollowed) {
  clock.advance(6ms);
  watch.wait_lap(true, false);

  EXPECT_EQ(sum(watch.take()), 6ms);
}

}  // namespace stopwatch_test
}  // namespace weir::engine
