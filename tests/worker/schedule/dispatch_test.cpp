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

constexpr Op weights(int m) {
  return {OpKind::kWeights, m};
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

// Cap 2, at most 3 held, 1 postponed.
Dispatcher split_stage() {
  Schedule schedule;
  schedule.caps = {3, 2, 1};
  schedule.split = Split{.held = {3, 3, 3}, .postponed = {0, 1, 0}};
  return {schedule, 3, 1, 6};
}
StageProgress ended(int f, int b, int w) {
  return {f, f, b, b, w, w};
}

TEST(SplitDispatch, PrefersForwardThenInputThenWeights) {
  const Dispatcher dispatcher = split_stage();
  const Ready both{.forward = true, .backward = true};

  EXPECT_EQ(dispatcher.next_op(ended(2, 1, 0), both), forward(2));
  EXPECT_EQ(dispatcher.next_op(ended(3, 1, 1), both), backward(1)) << "two are in flight";
  EXPECT_EQ(dispatcher.next_op(ended(3, 2, 0), {.backward = true}), backward(2));
  EXPECT_EQ(dispatcher.next_op(ended(3, 2, 0), {}), weights(0)) << "two are pending";
}

TEST(SplitDispatch, PostponesWeightsUntilTheyAreTooMany) {
  const Dispatcher dispatcher = split_stage();

  EXPECT_EQ(dispatcher.next_op(ended(2, 1, 0), {}), std::nullopt) << "one may wait";
  EXPECT_EQ(dispatcher.wanted(ended(2, 1, 0)), forward(2));
  EXPECT_EQ(dispatcher.next_op(ended(2, 2, 0), {}), weights(0));
  EXPECT_EQ(dispatcher.next_op(ended(2, 2, 1), {}), std::nullopt);
}

TEST(SplitDispatch, MakesRoomForAForwardThatOnlyMemoryStops) {
  const Dispatcher dispatcher = split_stage();

  EXPECT_EQ(dispatcher.next_op(ended(3, 1, 0), {.forward = true}), weights(0));
  EXPECT_EQ(dispatcher.next_op(ended(3, 1, 0), {}), std::nullopt);
  EXPECT_EQ(dispatcher.wanted(ended(3, 1, 0)), backward(1));
}

TEST(SplitDispatch, EndsWithTheWeights) {
  const Dispatcher dispatcher = split_stage();

  EXPECT_EQ(dispatcher.next_op(ended(6, 6, 5), {}), weights(5)) << "nothing is left to wait for";
  EXPECT_FALSE(dispatcher.done(ended(6, 6, 5)));
  EXPECT_TRUE(dispatcher.done(ended(6, 6, 6)));
  EXPECT_EQ(dispatcher.next_op(ended(6, 6, 6), {true, true}), std::nullopt);
}

TEST(SplitDispatch, NeverRunsWeightsOfABackwardThatRuns) {
  const StageProgress running{.forwards_started = 6,
                              .forwards_done = 6,
                              .backwards_started = 6,
                              .backwards_done = 5,
                              .weights_started = 5,
                              .weights_done = 5};
  EXPECT_EQ(split_stage().next_op(running, {}), std::nullopt);
}

TEST(SplitDispatch, AGivenOrderBringsItsOwnCaps) {
  const Dispatcher dispatcher(Order{forward(0), forward(1), backward(0), backward(1), weights(0),
                                    forward(2), backward(2), weights(1), weights(2)});

  EXPECT_TRUE(dispatcher.splits());
  EXPECT_EQ(dispatcher.cap(), 2);
  EXPECT_EQ(dispatcher.held_cap(), 2);
  EXPECT_EQ(dispatcher.micro_batches(), 3);
  EXPECT_EQ(dispatcher.next_op(ended(2, 2, 0), {.forward = true}), weights(0));
}

TEST(DispatchDeathTest, AnOrderOutOfSequenceIsOurOwnMistake) {
  EXPECT_DEATH(Dispatcher(Order{forward(1), backward(0)}), "rises by one");
  EXPECT_DEATH(Dispatcher(Order{forward(0)}), "as many backwards");
  EXPECT_DEATH(Dispatcher(Order{forward(0), weights(0), backward(0)}), "weights follow");
  EXPECT_DEATH(Dispatcher(Order{forward(0), forward(1), backward(0), weights(0), backward(1)}),
               "as many weights");
}

}  // namespace dispatch_test
}  // namespace weir::schedule
