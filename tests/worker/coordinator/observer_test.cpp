// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/observer.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/coordinator/switch_world.h"
#include "worker/timeline/codec.h"

namespace weir::coordinator::test {
namespace observer_test {

using protocol::StepPart;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::int64_t kTotal = 1000;
constexpr int kRanks = 3;

// A pipeline of three ranks in virtual time.
struct Ranks {
  Ranks() {
    for (int i = 0; i < kRanks; ++i) {
      members.hello(i + 1, {.member = member(i), .features = {protocol::kStepsFeature}}, now);
    }
    observer.follow(&plan, 0, {});
  }
  // All ranks have completed a step that took so long.
  void step(std::chrono::nanoseconds took = 1s) {
    now += took;
    ++done;
    for (int i = 0; i < kRanks; ++i) {
      const protocol::StageStatus status{
          .epoch = 1,
          .step = done,
          .stage = i,
          .step_seconds = std::chrono::duration<double>(took).count()};
      members.status(i, status);
      take(observer.on_status(status, members, now));
    }
    tick();
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
  void tick() { take(observer.tick(members, now)); }
  void pass(std::chrono::nanoseconds time) {
    now += time;
    tick();
  }
  std::optional<protocol::Stall> stall() const { return observer.stall(members, now); }
  void take(const Observer::Effects& effects) {
    for (const auto& [index, message] : effects.send) {
      if (index == 0) wanted.push_back(std::get<protocol::StepsWanted>(message));
    }
    for (const auto& dump : effects.dumps) dumps.push_back(dump);
    for (const auto& trace : effects.traces) traces.push_back(trace);
  }
  // The rank answers the newest request with the part that is under way.
  void answer(int rank, StepPart part, std::uint16_t micro_batch,
              std::vector<timeline::Event> before = {}) {
    timeline::RankRecord record{.stage = rank, .stages = kRanks, .events = std::move(before)};
    record.events.push_back({.begin = 0,
                             .end = 40'000'000'000,
                             .micro_batch = micro_batch,
                             .detail = static_cast<std::uint8_t>(part)});
    observer.on_steps(rank, {.id = wanted.back().id, .octets = timeline::encode(record)});
  }

  SteadyTime now{1h};
  Members members;
  Observer observer{kTotal};
  schedule::Plan plan = test::plan(1, schedule::Trigger::kInitial);
  std::int64_t done = 0;
  std::vector<protocol::StepsWanted> wanted;  // of rank 0
  std::vector<Observer::Dump> dumps;
  std::vector<Observer::Trace> traces;
};

TEST(Observer, AsksForTheNewestStepsThatAreWholeOncePerRequest) {
  Ranks ranks;
  ranks.take(ranks.observer.want_trace({"a", 3}, ranks.members, ranks.now));
  EXPECT_THAT(ranks.wanted, IsEmpty()) << "no step is complete";
  ranks.steps(9);
  ranks.take(ranks.observer.want_trace({"a", 3}, ranks.members, ranks.now));
  ranks.take(ranks.observer.want_trace({"a", 3}, ranks.members, ranks.now));
  ASSERT_THAT(ranks.wanted, SizeIs(1));
  EXPECT_EQ(ranks.wanted[0].from, 5);
  EXPECT_EQ(ranks.wanted[0].to, 7);

  for (int i = 0; i < kRanks; ++i) ranks.observer.on_steps(i, {.id = "a", .octets = "x"});
  ranks.tick();

  ASSERT_THAT(ranks.traces, SizeIs(1));
  EXPECT_EQ(ranks.traces[0].octets, "xxx");
  EXPECT_THAT(ranks.dumps, IsEmpty());
}

TEST(Observer, TellsWhoWaitsForWhomWhenNoStepComes) {
  Ranks ranks;
  ranks.steps(10);
  ranks.pass(Observer::kLeastStall - 1s);
  EXPECT_THAT(ranks.wanted, IsEmpty());
  ranks.pass(1s);
  ranks.pass(1s);
  ASSERT_THAT(ranks.wanted, SizeIs(1)) << "once";
  EXPECT_TRUE(ranks.wanted[0].open);
  EXPECT_EQ(ranks.wanted[0].from, 9);
  EXPECT_EQ(ranks.wanted[0].to, 11);
  ranks.answer(0, StepPart::kGradientLate, 2);
  ranks.answer(2, StepPart::kForwardLate, 4);

  ranks.pass(StepRecords::kPatience);

  ASSERT_THAT(ranks.dumps, SizeIs(1));
  EXPECT_EQ(ranks.dumps[0].step, 10);
  EXPECT_EQ(
      ranks.dumps[0].text,
      "no step for 30 s: 2 ranks wait for rank 1 (replica 0, stage 1), which does not answer");
  EXPECT_THAT(*timeline::decode(ranks.dumps[0].octets), SizeIs(2));
  ASSERT_TRUE(ranks.stall());
  EXPECT_EQ(ranks.stall()->seconds, 30);
  EXPECT_EQ(ranks.stall()->waiting, 2);
  ASSERT_THAT(ranks.stall()->ranks, SizeIs(1));
  EXPECT_EQ(ranks.stall()->ranks[0].stage, 1);
  EXPECT_EQ(ranks.stall()->ranks[0].part, "") << "it does not answer";

  ranks.pass(1h);
  EXPECT_THAT(ranks.wanted, SizeIs(1)) << "one stall is told once";
  EXPECT_TRUE(ranks.stall()) << "and reported as long as it lasts";
  ranks.step();
  EXPECT_FALSE(ranks.stall());
  ranks.pass(Observer::kLeastStall);
  EXPECT_THAT(ranks.wanted, SizeIs(2));
}

TEST(Observer, ReportsNoStallWhereARankDoesWhatItShould) {
  Ranks ranks;
  ranks.steps(10);
  ranks.pass(Observer::kLeastStall);
  ranks.answer(0, StepPart::kGradientLate, 0);
  ranks.answer(1, StepPart::kGradientLate, 0);
  ranks.answer(2, StepPart::kValidation, 0);
  ranks.pass(StepRecords::kPatience);
  EXPECT_THAT(ranks.dumps, SizeIs(1));
  EXPECT_FALSE(ranks.stall());

  Ranks slow;  // steps of a kind of which there are too few for a median
  slow.step(40s);
  slow.pass(399s);
  EXPECT_THAT(slow.wanted, IsEmpty());
  slow.pass(1s);
  EXPECT_THAT(slow.wanted, SizeIs(1));
}

TEST(Observer, OneDumpInTenMinutesIsForUsersAndThoseOfStalls) {
  Ranks ranks;
  ranks.steps(9);
  const auto answer = [&] {
    for (int i = 0; i < kRanks; ++i) ranks.answer(i, StepPart::kForward, 0);
    ranks.tick();
    return ranks.dumps.back().for_users;
  };
  ranks.step(5s);
  ranks.steps(2);
  EXPECT_TRUE(answer()) << "a slow step";
  const auto lose = [&] { ranks.take(ranks.observer.on_lost("pod-1", ranks.members, ranks.now)); };
  lose();
  EXPECT_TRUE(answer()) << "worse than a slow step";
  ranks.step(Observer::kPauseOfLosses);
  lose();
  EXPECT_FALSE(answer()) << "in the log's folder only";
  ranks.step(1s);
  ranks.pass(Observer::kPauseForUsers / 2);
  EXPECT_TRUE(answer()) << "a stall";
  ranks.step(Observer::kPauseForUsers);
  lose();
  EXPECT_TRUE(answer());

  ranks.step(Observer::kPauseForUsers);
  lose();
  ranks.pass(StepRecords::kPatience);  // no rank keeps events
  EXPECT_FALSE(ranks.dumps.back().for_users);
}

TEST(Observer, ReportsForWhomABrokenGenerationWaits) {
  Ranks ranks;
  ranks.steps(10);
  ranks.members.closed(2);  // of rank 1
  ranks.observer.follow(nullptr, 0, {});
  ranks.pass(Observer::kLeastStall - 1s);
  EXPECT_FALSE(ranks.stall()) << "it may be back soon";
  ranks.pass(1s);
  ASSERT_TRUE(ranks.stall());
  EXPECT_EQ(ranks.stall()->waiting, 2);
  ASSERT_THAT(ranks.stall()->ranks, SizeIs(1));
  EXPECT_EQ(ranks.stall()->ranks[0].stage, 1);

  ranks.members.hello(9, {.member = member(1)}, ranks.now);
  EXPECT_FALSE(ranks.stall()) << "all are there";
  ranks.observer.follow(&ranks.plan, 1, {});
  ranks.members.closed(9);
  ranks.observer.follow(nullptr, 1, {});
  EXPECT_TRUE(ranks.stall()) << "no step came in between";
  ranks.members.leave(2, "SIGTERM");
  EXPECT_FALSE(ranks.stall()) << "it is the end";
}

TEST(Observer, AStallIsLongForStepsOfItsKindAndNotTheEndOfTraining) {
  Ranks ranks;
  for (int i = 0; i < 9; ++i) ranks.step(10s);
  ranks.pass(99s);
  EXPECT_THAT(ranks.wanted, IsEmpty());
  ranks.pass(1s);
  EXPECT_THAT(ranks.wanted, SizeIs(1));

  Ranks last;
  last.done = kTotal - 1;
  last.step();
  last.pass(1h);
  EXPECT_THAT(last.wanted, IsEmpty());
  Ranks leaving;
  leaving.steps(9);
  leaving.members.leave(1, "SIGTERM");
  leaving.pass(1h);
  EXPECT_THAT(leaving.wanted, IsEmpty());
}

TEST(Observer, DumpsASlowStepWithTheStepsBesideIt) {
  Ranks ranks;
  ranks.steps(9);
  ranks.step(2050ms);
  EXPECT_THAT(ranks.wanted, IsEmpty()) << "the step behind it has not come";
  ranks.steps(2);
  ASSERT_THAT(ranks.wanted, SizeIs(1));
  EXPECT_EQ(ranks.wanted[0].from, 8);  // steps 9 to 11
  EXPECT_EQ(ranks.wanted[0].to, 10);
  const auto save = [](std::uint32_t step, std::int64_t ms) {
    return timeline::Event{.begin = 0,
                           .end = ms * 1'000'000,
                           .step = step,
                           .detail = static_cast<std::uint8_t>(StepPart::kSave)};
  };
  ranks.answer(0, StepPart::kForward, 0);
  ranks.answer(1, StepPart::kForward, 0, {save(8, 10), save(9, 1060)});
  ranks.answer(2, StepPart::kForward, 0);
  ranks.tick();

  ASSERT_THAT(ranks.dumps, SizeIs(1));
  EXPECT_EQ(ranks.dumps[0].step, 10);
  EXPECT_EQ(ranks.dumps[0].text,
            "step 10 took 2.05 s (median 1.00 s): save on rank 1 (replica 0, stage 1), 1.1 s more");
  ranks.step(5s);
  ranks.steps(3);
  EXPECT_THAT(ranks.wanted, SizeIs(1)) << "one in ten minutes";
  ranks.steps(600);
  ranks.step(5s);
  ranks.steps(3);
  EXPECT_THAT(ranks.wanted, SizeIs(2));
}

TEST(Observer, ShortStepsThatTakeSomeMillisecondsMoreAreNotSlow) {
  Ranks ranks;
  for (int i = 0; i < 20; ++i) ranks.step(10ms);
  ranks.step(109ms);
  for (int i = 0; i < 3; ++i) ranks.step(10ms);
  EXPECT_THAT(ranks.wanted, IsEmpty());
  ranks.step(111ms);
  for (int i = 0; i < 3; ++i) ranks.step(10ms);
  EXPECT_THAT(ranks.wanted, SizeIs(1));
}

TEST(Observer, AsksTheOthersForTheirLastStepsWhenARankIsLost) {
  Ranks ranks;
  ranks.take(ranks.observer.on_lost("pod-1", ranks.members, ranks.now));
  EXPECT_THAT(ranks.wanted, IsEmpty()) << "no step yet";
  ranks.steps(9);
  ranks.members.closed(2);
  ranks.take(ranks.observer.on_lost("pod-1 (closed)", ranks.members, ranks.now));
  ranks.take(ranks.observer.on_lost("stage 1", ranks.members, ranks.now));
  ASSERT_THAT(ranks.wanted, SizeIs(1));
  EXPECT_EQ(ranks.wanted[0].from, 8);
  EXPECT_EQ(ranks.wanted[0].to, 10);
  ranks.observer.follow(nullptr, 0, {});  // the generation is broken
  ranks.answer(0, StepPart::kSwitch, 0);
  ranks.answer(2, StepPart::kSwitch, 0);
  ranks.tick();

  ASSERT_THAT(ranks.dumps, SizeIs(1));
  EXPECT_EQ(ranks.dumps[0].text, "pod-1 (closed) is lost after step 9");
  EXPECT_THAT(*timeline::decode(ranks.dumps[0].octets), SizeIs(2));
}

}  // namespace observer_test
}  // namespace weir::coordinator::test
