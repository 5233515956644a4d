// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/dispatch.h"

#include <gtest/gtest.h>

namespace weir::schedule {
namespace dispatch_test {

constexpr Op forward(int m) {
  return {OpKind::kForward, m};
}
constexpr Op backward(int m) {
  return {OpKind::kBackward, m};
}

Dispatcher stage_1_of_3(Dispatch dispatch, std::vector<int> caps) {
  Schedule schedule;
  schedule.dispatch = dispatch;
  schedule.caps = std::move(caps);
  return {schedule, 3, 1, 6};
}
// f forwards and b backwards have ended, nothing runs.
StageProgress ended(int f, int b) {
  return {f, f, b, b};
}

TEST(Dispatch, StrictWaitsForTheNextOfTheOrder) {
  const Dispatcher dispatcher = stage_1_of_3(Dispatch::kStrict, {3, 2, 1});  // F0 F1 B0 F2 ..

  EXPECT_EQ(dispatcher.next_op(ended(2, 0), {.forward = true}), std::nullopt);
  EXPECT_EQ(dispatcher.wanted(ended(2, 0)), backward(0));
  EXPECT_EQ(dispatcher.next_op(ended(2, 0), {.backward = true}), backward(0));
  EXPECT_EQ(dispatcher.next_op(ended(2, 1), {.backward = true}), std::nullopt);
  EXPECT_EQ(dispatcher.next_op(ended(2, 1), {.forward = true, .backward = true}), forward(2));
}

TEST(Dispatch, HintPrefersForwardUpToTheCap) {
  const Dispatcher dispatcher = stage_1_of_3(Dispatch::kHint, {6, 4, 2});

  EXPECT_EQ(dispatcher.next_op(ended(3, 0), {.forward = true, .backward = true}), forward(3));
  EXPECT_EQ(dispatcher.next_op(ended(4, 0), {.forward = true, .backward = true}), backward(0));
  EXPECT_EQ(dispatcher.next_op(ended(4, 0), {.forward = true}), std::nullopt);
}

TEST(Dispatch, HintNeverIdlesWhileABackwardIsReady) {
  const Dispatcher dispatcher = stage_1_of_3(Dispatch::kHint, {6, 4, 2});

  EXPECT_EQ(dispatcher.next_op(ended(1, 0), {.backward = true}), backward(0));
  EXPECT_EQ(dispatcher.wanted(ended(1, 0)), forward(1));
  EXPECT_EQ(dispatcher.next_op(ended(1, 1), {.backward = true}), std::nullopt)
      << "no backward before its forward";
}

TEST(Dispatch, NothingIsWantedWhenTheStepIsOver) {
  for (const Dispatch dispatch : {Dispatch::kHint, Dispatch::kStrict}) {
    const Dispatcher dispatcher = stage_1_of_3(dispatch, {6, 4, 2});
    EXPECT_EQ(dispatcher.wanted(ended(6, 6)), std::nullopt);
    EXPECT_EQ(dispatcher.next_op(ended(6, 6), {true, true}), std::nullopt);
    EXPECT_TRUE(dispatcher.done(ended(6, 6)));
    EXPECT_FALSE(dispatcher.done(ended(6, 5)));
  }
}

TEST(Dispatch, ARunningBackwardStillCountsAsInFlight) {
  const Dispatcher dispatcher = stage_1_of_3(Dispatch::kHint, {3, 2, 1});
  const StageProgress running{.forwards_started = 2, .forwards_done = 2, .backwards_started = 1};

  EXPECT_EQ(running.in_flight(), 2);
  EXPECT_EQ(dispatcher.next_op(running, {.forward = true}), std::nullopt);
}

TEST(Dispatch, CapIsClippedToTheStep) {
  EXPECT_EQ(stage_1_of_3(Dispatch::kHint, {9, 9, 9}).cap(), 6);
  EXPECT_EQ(stage_1_of_3(Dispatch::kHint, {9, 9, 9}).micro_batches(), 6);
}

TEST(Dispatch, AGivenOrderBringsItsOwnCap) {
  const Dispatcher dispatcher(fill_order(6, 3));

  EXPECT_EQ(dispatcher.cap(), 3);
  EXPECT_EQ(dispatcher.micro_batches(), 6);
}

TEST(DispatchDeathTest, AnOrderOutOfSequenceIsOurOwnMistake) {
  EXPECT_DEATH(Dispatcher(Order{forward(1), backward(0)}), "rises by one");
  EXPECT_DEATH(Dispatcher(Order{forward(0)}), "as many backwards");
}

}  // namespace dispatch_test
}  // namespace weir::schedule
