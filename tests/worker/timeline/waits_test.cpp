// SPDX-License-Identifier: Apache-2.0
#include "worker/timeline/waits.h"

#include <vector>

#include <gtest/gtest.h>

namespace weir::timeline {
namespace waits_test {

using protocol::StepPart;
using namespace std::chrono_literals;

constexpr int kStages = 4;

// Replicas of four stages, stage s on node n<s+1>; all wait for the stage before, the first
// computes.
std::vector<Doing> ranks(int replicas = 1) {
  std::vector<Doing> all;
  for (int replica = 0; replica < replicas; ++replica) {
    for (int stage = 0; stage < kStages; ++stage) {
      all.push_back({.replica = replica,
                     .stage = stage,
                     .node = "n" + std::to_string(stage + 1),
                     .silent = false,
                     .part = stage == 0 ? StepPart::kForward : StepPart::kForwardLate,
                     .since = 63s});
    }
  }
  return all;
}
void set(Doing& rank, StepPart part, int micro_batch = -1) {
  rank.part = part;
  if (micro_batch >= 0) rank.micro_batch = static_cast<std::uint16_t>(micro_batch);
}

TEST(ChainOfWaits, EndsAtTheRankThatComputes) {
  auto all = ranks();
  set(all[0], StepPart::kGradientLate, 3);
  set(all[1], StepPart::kGradientLate, 3);
  set(all[2], StepPart::kBackward, 7);
  EXPECT_EQ(
      text_of(chain_of_waits(all), kStages),
      "3 ranks wait for rank 2 (replica 0, stage 2, n3), in backward of micro-batch 7 for 63 s");
}

TEST(ChainOfWaits, EndsAtTheRankThatIsSilentThroughSumsAndWindows) {
  auto all = ranks(2);
  set(all[0], StepPart::kSum);
  set(all[1], StepPart::kNote);
  set(all[2], StepPart::kSum);
  set(all[3], StepPart::kSum);
  set(all[4], StepPart::kFullPeer, 2);
  set(all[5], StepPart::kFullPeer, 2);
  set(all[6], StepPart::kForwardLate, 1);
  all[6] = {.replica = 1, .stage = 2, .node = "n3"};
  all[7].since = 70s;
  EXPECT_EQ(text_of(chain_of_waits(all), kStages),
            "7 ranks wait for rank 6 (replica 1, stage 2, n3), which does not answer");
}

TEST(ChainOfWaits, TellsACircle) {
  auto all = ranks();
  set(all[0], StepPart::kGradientLate, 0);
  EXPECT_EQ(
      text_of(chain_of_waits(std::span(all).first(2)), kStages),
      "ranks wait for each other: rank 0 (replica 0, stage 0, n1), which waits (gradient late) "
      "of micro-batch 0 for 63 s, for rank 1 (replica 0, stage 1, n2), which waits (forward "
      "late) for 63 s, for rank 0");
}

TEST(ChainOfWaits, NamesTheLongestWhereNobodyWaits) {
  auto all = ranks();
  for (Doing& rank : all) rank.part = StepPart::kSwitch;
  all[1].part = StepPart::kSave;
  all[1].since = 95'300ms;
  EXPECT_EQ(text_of(chain_of_waits(all), kStages),
            "no rank waits for another one: rank 1 (replica 0, stage 1, n2), in save for 95 s");
}

schedule::Plan plan_of(const std::vector<Doing>& all) {
  schedule::Plan plan;
  for (const Doing& rank : all) {
    plan.ranks.push_back({.node = rank.node, .replica = rank.replica, .stage = rank.stage});
  }
  return plan;
}

TEST(Stall, TellsTheOperatorTheSameChain) {
  auto all = ranks(2);
  set(all[2], StepPart::kBackward, 7);
  all[3].silent = true;
  for (const auto some : {std::span(all), std::span(all).first(3), std::span(all).first(1)}) {
    const Waits waits = chain_of_waits(some);

    const auto read = waits_of(stall_of(waits, 31), plan_of(all));

    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(text_of(*read, kStages), text_of(waits, kStages));
  }
}

TEST(Stall, OfSeveralRanksThatDoNotAnswerNamesAll) {
  const Waits waits{.waiting = 2, .ranks = {{.stage = 1, .node = "n2"}, {.stage = 3}}};
  EXPECT_EQ(text_of(waits, kStages),
            "2 ranks wait for rank 1 (replica 0, stage 1, n2), which does not answer, and rank "
            "3 (replica 0, stage 3), which does not answer");
}

TEST(Stall, IsNotBelievedWhereItDoesNotFitThePlan) {
  const auto all = ranks();
  const auto plan = plan_of(all);
  protocol::Stall stall = stall_of(chain_of_waits(all), 31);
  for (const auto& spoil : std::vector<void (*)(protocol::Stall&)>{
           [](protocol::Stall& s) { s.ranks[0].stage = kStages; },
           [](protocol::Stall& s) { s.ranks[0].replica = -1; },
           [](protocol::Stall& s) { s.waiting = -1; }, [](protocol::Stall& s) { s.ranks.clear(); },
           [](protocol::Stall& s) { s.ranks.resize(protocol::kMostStalledRanks + 1); }}) {
    protocol::Stall other = stall;
    spoil(other);
    EXPECT_FALSE(waits_of(other, plan));
  }
  stall.ranks[0] = {.part = "\x1b[31mof a newer worker", .micro_batch = 1 << 20, .seconds = 1e300};
  EXPECT_EQ(text_of(*waits_of(stall, plan), kStages),
            "3 ranks wait for rank 0 (replica 0, stage 0, n1), in other");
}

TEST(Doing, IsTheLastPartOfTheRecordOfItsPlace) {
  RankRecord record{.stage = 1, .stages = kStages};
  record.events = {{.begin = 0, .end = 10, .detail = static_cast<std::uint8_t>(StepPart::kData)},
                   {.begin = 10,
                    .end = 2'000'000'010,
                    .micro_batch = 3,
                    .detail = static_cast<std::uint8_t>(StepPart::kBackward)}};

  const auto doing = doing_of({{.stage = 0}, {.stage = 1, .node = "n2"}}, std::span(&record, 1));

  EXPECT_TRUE(doing[0].silent);
  EXPECT_FALSE(doing[1].silent);
  EXPECT_EQ(doing[1].part, StepPart::kBackward);
  EXPECT_EQ(doing[1].micro_batch, 3);
  EXPECT_EQ(doing[1].since, 2s);
  EXPECT_EQ(doing[1].node, "n2");
}

TEST(WhatGrew, IsThePartThatIsNoWaitOfAnyRank) {
  const auto part = [](StepPart kind, std::uint32_t step, std::int64_t ms) {
    return Event{
        .begin = 0, .end = ms * 1'000'000, .step = step, .detail = static_cast<std::uint8_t>(kind)};
  };
  std::vector<RankRecord> records{{.node = "n1", .stages = 2},
                                  {.node = "n2", .stage = 1, .stages = 2}};
  records[0].events = {part(StepPart::kForward, 6, 300), part(StepPart::kForward, 7, 350),
                       part(StepPart::kGradientLate, 7, 9000)};
  records[1].events = {part(StepPart::kSave, 6, 20), part(StepPart::kSave, 7, 1000),
                       part(StepPart::kSave, 7, 1130)};

  EXPECT_EQ(what_grew(records, 7), "save on rank 1 (replica 0, stage 1, n2), 2.1 s more");
  EXPECT_EQ(what_grew(records, 6), "") << "without the step before";
  EXPECT_EQ(what_grew(std::span(records).first(1), 7), "") << "50 ms are not worth telling";
}

}  // namespace waits_test
}  // namespace weir::timeline
