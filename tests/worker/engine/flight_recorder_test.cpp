// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/flight_recorder.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

namespace weir::engine {
namespace flight_recorder_test {

using timeline::Event;
using timeline::EventKind;

constexpr std::uint32_t kAll = 0xFFFFFFFF;

TEST(FlightRecorder, KeepsTheNewestEventsOfTheStepsThatAreAskedFor) {
  FlightRecorder recorder(8);
  for (std::uint32_t step = 0; step < 20; ++step) {
    recorder.at_step(step);
    recorder.at_micro_batch(3);
    recorder.add(EventKind::kOp, 1, step, step + 1);
  }

  const auto all = recorder.read(0, kAll);
  ASSERT_GE(all.size(), 7U) << "one may be under way";
  EXPECT_EQ(all.back(), (Event{.begin = 19,
                               .end = 20,
                               .step = 19,
                               .micro_batch = 3,
                               .kind = EventKind::kOp,
                               .detail = 1}));
  const auto some = recorder.read(15, 17);
  ASSERT_EQ(some.size(), 3U);
  EXPECT_EQ(some.front().step, 15U);
  EXPECT_TRUE(recorder.read(2, 5).empty()) << "overwritten";
}

TEST(FlightRecorder, ReadsNothingOfAnotherPlace) {
  FlightRecorder recorder(64);
  recorder.add(EventKind::kPart, 0, 1, 2);
  recorder.begin_place(0, 1, 2);
  recorder.add(EventKind::kPart, 0, 3, 4);
  recorder.add(EventKind::kPart, 0, 4, 4);

  const auto events = recorder.read(0, kAll);
  ASSERT_EQ(events.size(), 1U) << "a part without length says nothing";
  EXPECT_EQ(events[0].begin, 3);
}

TEST(FlightRecorder, TellsThePartUnderWay) {
  FlightRecorder recorder(8);
  EXPECT_EQ(recorder.under_way().stage, -1);
  EXPECT_EQ(recorder.under_way().part, protocol::StepPart::kOther);
  recorder.begin_place(1, 2, 4);
  recorder.at_step(4'000'000'000);
  recorder.begin_part(protocol::StepPart::kGradientLate, 9, 77);

  const UnderWay found = recorder.under_way();
  EXPECT_EQ(found.part, protocol::StepPart::kGradientLate);
  EXPECT_EQ(found.micro_batch, 9);
  EXPECT_EQ(found.step, 4'000'000'000U);
  EXPECT_EQ(found.since, 77);
  EXPECT_EQ(found.replica, 1);
  EXPECT_EQ(found.stage, 2);
  EXPECT_EQ(found.stages, 4);
}

// All fields of an event are the same number, so that a mixture of two events is seen.
TEST(FlightRecorder, AReaderOnAnotherThreadSeesWholeEventsInOrder) {
  FlightRecorder recorder(256);
  std::atomic<bool> ends{false}, wrong{false};
  std::atomic<std::int64_t> reads{0};
  std::thread reader([&] {
    while (!ends || reads == 0) {
      std::int64_t before = -1;
      for (const Event& event : recorder.read(0, kAll)) {
        const bool whole = event.end == event.begin && event.extra == event.begin &&
                           event.step == static_cast<std::uint32_t>(event.begin);
        if (!whole || event.begin <= before) wrong = true;
        before = event.begin;
      }
      ++reads;
    }
  });
  for (std::int64_t i = 0; i < 300'000 || reads < 50; ++i) {
    recorder.add({.begin = i, .end = i, .extra = i, .step = static_cast<std::uint32_t>(i)});
  }
  ends = true;
  reader.join();
  EXPECT_FALSE(wrong);
}

}  // namespace flight_recorder_test
}  // namespace weir::engine
