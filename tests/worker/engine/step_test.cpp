// SPDX-License-Identifier: Apache-2.0
// One step against scripted peers: order, slots, windows, causes of waiting.
#include "worker/engine/step.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/fakes.h"
#include "worker/schedule/caps.h"

namespace weir::engine {
namespace step_test {

using namespace std::chrono_literals;
using testing::ElementsAre;
using transport::Channel;
using transport::LinkEnd;

constexpr LinkEnd kActivationIn{.peer_stage = 0, .channel = Channel::kForward, .sending = false};
constexpr LinkEnd kGradientIn{.peer_stage = 1, .channel = Channel::kBackward, .sending = false};

schedule::Plan plan_of(schedule::Family family, int k, int micro_batches) {
  schedule::Plan plan;
  plan.revision = 1;
  plan.schedule = {.family = family,
                   .dispatch = schedule::Dispatch::kStrict,
                   .k = k,
                   .micro_batch_size = 2,
                   .caps = schedule::kfkb_caps(2, micro_batches, k)};
  plan.micro_batches = {micro_batches};
  plan.stages = {{0, 0}, {1, 1}};
  return plan;
}

// Stage `stage` of two, its peers played by the test.
class Rank {
 public:
  Rank(schedule::Plan plan, int stage)
      : plan_(std::move(plan)),
        stage_(stage),
        compute_(*device_, journal_, stage == 0, stage == 1),
        links_(&peers, *device_, stage, 2) {}

  Result<StepRecord> run(bool last_step = false) {
    const StepParts parts =
        test::scripted_parts(compute_, links_, dataset_, recorder, stopwatch, codec, clock);
    const StepOrder order{.plan = plan_, .stage = stage_, .header_follows = !last_step};
    return run_step(parts, order, {});
  }
  std::vector<std::string> journal_of(const std::string& kinds) const {
    std::vector<std::string> found;
    for (const auto& entry : *journal_) {
      if (kinds.find(entry.front()) != std::string::npos) found.push_back(entry);
    }
    return found;
  }
  const test::Journal& journal() const { return *journal_; }
  // Takes everything that was sent.
  void acknowledge_all(std::optional<transport::Transfer> transfer = std::nullopt) {
    for (; acknowledged_ < peers.sent.size(); ++acknowledged_) {
      peers.acknowledge(peers.sent_ends[acknowledged_], transfer);
    }
  }

 private:
  std::unique_ptr<device::Device> device_ = device::make_host_device();
  std::shared_ptr<test::Journal> journal_ = std::make_shared<test::Journal>();

 public:
  weir::test::ManualClock clock;
  Recorder recorder;
  Stopwatch stopwatch{clock, recorder};
  BoundaryCodec codec = test::host_codec(*device_);
  test::ScriptedCommunicator peers{&clock, journal_};

 private:
  std::size_t acknowledged_ = 0;
  schedule::Plan plan_;
  int stage_;
  test::NoData dataset_;
  test::FakeStage compute_;
  StageLinks links_;
};

TEST(Step, RunsTheOrderOfThePlanOnTheLastStage) {
  Rank rank(plan_of(schedule::Family::kOneFOneB, 1, 3), 1);
  rank.peers.on_wait = [&] { rank.peers.deliver(kActivationIn); };

  const auto record = rank.run();

  ASSERT_TRUE(record);
  EXPECT_THAT(rank.journal_of("FBO"), ElementsAre("F0", "B0", "F1", "B1", "F2", "B2", "O"));
  EXPECT_EQ(record->loss, 1.5);
  EXPECT_EQ(record->samples, 6);
}

TEST(Step, RunsGroupsOfKOnTheLastStage) {
  Rank rank(plan_of(schedule::Family::kKfkb, 2, 3), 1);
  rank.peers.on_wait = [&] { rank.peers.deliver(kActivationIn); };

  ASSERT_TRUE(rank.run());

  EXPECT_THAT(rank.journal_of("FBO"), ElementsAre("F0", "F1", "B0", "B1", "F2", "B2", "O"));
}

TEST(Step, RunsTheWeightsOfASplitBackwardWhileItWouldWait) {
  auto plan = plan_of(schedule::Family::kOneFOneB, 1, 3);
  plan.schedule.dispatch = schedule::Dispatch::kHint;
  plan.schedule.split = schedule::Split{.held = {3, 3}, .postponed = {0, 1}};
  Rank rank(plan, 1);
  rank.peers.on_wait = [&] { rank.peers.deliver(kActivationIn); };

  const auto record = rank.run();

  ASSERT_TRUE(record);
  EXPECT_THAT(rank.journal_of("FBWO"),
              ElementsAre("F0", "B0", "F1", "B1", "W0", "F2", "B2", "W1", "W2", "O"));
  EXPECT_EQ(record->in_flight_peak, 1);
  EXPECT_EQ(record->held_peak, 2);
}

TEST(Step, GivesASlotBackAfterTheOpAndBeforeItsResultIsSent) {
  Rank rank(plan_of(schedule::Family::kOneFOneB, 1, 8), 1);
  rank.peers.on_wait = [&] {
    rank.peers.deliver(kActivationIn);
    rank.acknowledge_all();
  };

  ASSERT_TRUE(rank.run());

  const auto f0 = std::find(rank.journal().begin(), rank.journal().end(), "F0");
  EXPECT_EQ(*(f0 + 1), "post fwd");  // granted again before B0 is even started
  const auto b0 = std::find(rank.journal().begin(), rank.journal().end(), "B0");
  EXPECT_EQ(*(b0 + 1), "send bwd");
}

TEST(Step, PostsAsManySlotsAsTheCreditsSayAndNoneBeyondTheStep) {
  Rank rank(plan_of(schedule::Family::kKfkb, 1, 8), 1);
  std::size_t first_posts = 0, most_posts = 0;
  rank.peers.on_wait = [&] {
    const auto tensors = static_cast<std::size_t>(
        std::count_if(rank.peers.posted.begin(), rank.peers.posted.end(),
                      [](const auto& slot) { return slot.second.size() > kStepHeaderBytes; }));
    if (first_posts == 0) first_posts = tensors;
    most_posts = std::max(most_posts, tensors);
    rank.peers.deliver(kActivationIn);
    rank.acknowledge_all();
  };

  ASSERT_TRUE(rank.run());

  EXPECT_EQ(first_posts, 3U);  // credits of k = 1: n + 1 with n = 2
  EXPECT_EQ(most_posts, 3U);
  const auto posts = rank.journal_of("p");
  EXPECT_EQ(std::count(posts.begin(), posts.end(), "post fwd"), 8);
  EXPECT_EQ(posts.back(), "post fwd header");  // the next thing to come
}

TEST(Step, PostsNoHeaderAfterTheLastStepOfTheRun) {
  Rank rank(plan_of(schedule::Family::kKfkb, 1, 2), 1);
  rank.peers.on_wait = [&] { rank.peers.deliver(kActivationIn); };

  ASSERT_TRUE(rank.run(true));

  EXPECT_THAT(rank.journal_of("p"), ElementsAre("post fwd", "post fwd", "post fwd note"));
}

TEST(Step, StartsNoForwardWithoutRoomInTheSendWindow) {
  Rank rank(plan_of(schedule::Family::kKfkb, 2, 8), 0);  // cap 4, window 3

  const auto stuck = rank.run();  // nothing is acknowledged

  ASSERT_FALSE(stuck);
  EXPECT_EQ(stuck.error().code, Code::kTimeout);
  EXPECT_THAT(rank.journal_of("FB"), ElementsAre("F0", "F1", "F2"));
  EXPECT_EQ(rank.peers.sent.size(), 3U);
}

TEST(Step, CountsAFullWindowAsCreditAndAMissingInputAsWaiting) {
  schedule::Plan plan = plan_of(schedule::Family::kKfkb, 2, 8);
  plan.schedule.dispatch = schedule::Dispatch::kHint;
  plan.schedule.caps = {4, 2};
  Rank rank(plan, 0);
  int waits = 0;
  rank.peers.on_wait = [&] {
    ++waits;
    if (waits <= 5) return;  // 5 waits with a full window (3), then all goes
    rank.acknowledge_all();
    rank.peers.deliver(kGradientIn);
  };

  ASSERT_TRUE(rank.run());

  const Statistics statistics = rank.recorder.read();
  EXPECT_GE(statistics.seconds_of(StepPart::kFullPeer), 0.05);
  EXPECT_GT(statistics.seconds_of(StepPart::kGradientLate), 0);
  EXPECT_EQ(statistics.seconds_of(StepPart::kForwardLate), 0);
  EXPECT_EQ(statistics.in_flight_peak, 4);
}

// Five waits of 10 ms with a full window; its oldest result had a slot after 20 ms.
TEST(Step, DividesAWaitForRoomByTheResultThatMadeIt) {
  schedule::Plan plan = plan_of(schedule::Family::kKfkb, 2, 8);
  plan.schedule.dispatch = schedule::Dispatch::kHint;
  plan.schedule.caps = {4, 2};
  Rank rank(plan, 0);
  int waits = 0;
  SteadyTime start;
  rank.peers.on_wait = [&] {
    if (++waits == 1) start = rank.clock.now();
    if (waits <= 5) return;
    rank.acknowledge_all(transport::Transfer{.begin = start + 20ms, .end = start + 50ms});
    rank.peers.deliver(kGradientIn);
  };

  ASSERT_TRUE(rank.run());

  const Statistics statistics = rank.recorder.read();
  EXPECT_NEAR(statistics.seconds_of(StepPart::kFullPeer), 0.02, 0.011);
  EXPECT_NEAR(statistics.seconds_of(StepPart::kFullLink), 0.03, 0.011);
}

TEST(Step, FailsWhenNothingComesBeforeTheProgressDeadline) {
  Rank rank(plan_of(schedule::Family::kOneFOneB, 1, 2), 1);

  const auto record = rank.run();

  ASSERT_FALSE(record);
  EXPECT_EQ(record.error().code, Code::kTimeout);
  EXPECT_NEAR(rank.recorder.read().seconds_of(StepPart::kForwardLate), 1.0, 0.05);
}

TEST(Step, FailsWithThePeersReasonWhenALinkBreaks) {
  Rank rank(plan_of(schedule::Family::kOneFOneB, 1, 2), 1);
  rank.peers.on_wait = [&] { rank.peers.fail("stage 0 closed the link in a message"); };

  const auto record = rank.run();

  ASSERT_FALSE(record);
  EXPECT_EQ(record.error().code, Code::kUnavailable);
  EXPECT_EQ(record.error().message, "stage 0 closed the link in a message");
}

TEST(Step, FailsSoonWhenThePeerThatItWaitsForHasLeft) {
  Rank rank(plan_of(schedule::Family::kOneFOneB, 1, 2), 1);
  rank.peers.on_wait = [&] {
    if (rank.peers.left.empty()) rank.peers.deliver(kActivationIn);
    rank.peers.left = {kActivationIn};
  };

  const auto record = rank.run();

  ASSERT_FALSE(record);
  EXPECT_EQ(record.error().code, Code::kUnavailable);
  EXPECT_EQ(record.error().message, "the stage before has left in the middle of a step");
  EXPECT_THAT(rank.journal_of("FB"), ElementsAre("F0", "B0"));
  // The progress deadline is 1 s.
  EXPECT_LT(rank.recorder.read().seconds_of(StepPart::kForwardLate), 0.1);
}

TEST(Step, DoesNotMindThatAPeerWithNothingLeftToSendHasLeft) {
  Rank rank(plan_of(schedule::Family::kOneFOneB, 1, 2), 1);
  rank.peers.on_wait = [&] {
    rank.peers.deliver(kActivationIn);
    rank.peers.deliver(kActivationIn);
    rank.peers.left = {kActivationIn};
  };

  EXPECT_TRUE(rank.run());
}

TEST(Step, RunsAForwardThatArrivedDuringAnOpBeforeTheNextBackward) {
  schedule::Plan plan = plan_of(schedule::Family::kKfkb, 2, 4);
  plan.schedule.dispatch = schedule::Dispatch::kHint;
  Rank rank(plan, 1);
  bool delivered = false;
  rank.peers.on_wait = [&] {
    // Two at once: with the second one unread, Hint would take B0 before F1.
    rank.peers.deliver(kActivationIn);
    rank.peers.deliver(kActivationIn);
    rank.acknowledge_all();
    delivered = true;
  };

  ASSERT_TRUE(rank.run());

  EXPECT_TRUE(delivered);
  EXPECT_THAT(rank.journal_of("FB"), ElementsAre("F0", "F1", "B0", "B1", "F2", "F3", "B2", "B3"));
}

}  // namespace step_test
}  // namespace weir::engine
