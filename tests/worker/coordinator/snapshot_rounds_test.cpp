// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/snapshot_rounds.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/coordinator/switch_world.h"

namespace weir::coordinator::test {
namespace snapshot_rounds_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kTotal = 1000;

// Ranks that train plan 1, a snapshot each 10 steps.
struct Rounds {
  explicit Rounds(NeighborCopies copies_wanted = NeighborCopies::kAuto, int stages = 3)
      : count(stages),
        current(plan(1, schedule::Trigger::kInitial, stages)),
        policy{.every_steps = 10, .deadline = 60s, .copies = copies_wanted, .for_leaving = true} {
    for (int i = 0; i < count; ++i) members.hello(++session, {.member = member(i)}, now);
    advance();
  }
  void advance() { take(rounds.advance(trains ? &current : nullptr, members, now)); }
  void stand_at(std::int64_t step) {
    for (int i = 0; i < count; ++i) members.status(i, {.epoch = 1, .step = step, .stage = i});
    advance();
  }
  // Together, and then all ranks that leave have said so.
  void leave(const std::vector<int>& who) {
    for (const int index : who) members.leave(index, "SIGTERM");
    advance();
    now += 1s;
    advance();
  }
  void leave(int index) { leave(std::vector<int>{index}); }
  void answer(int index, protocol::Saved saved) {
    saved.snapshot = true;
    take(rounds.on_saved(index, saved, members));
    advance();
  }
  void take(SnapshotRounds::Effects effects) {
    for (auto& [index, message] : effects.send) {
      if (const auto* const save = std::get_if<protocol::Save>(&message)) {
        EXPECT_TRUE(save->snapshot);
        if (save->copy) {
          copies.push_back({index, *save->copy});
        } else if (index == 0) {
          ordered.push_back(save->step);
        }
      }
      if (const auto* const saved = std::get_if<protocol::Saved>(&message)) {
        EXPECT_TRUE(saved->snapshot);
        if (index == 0) ended.push_back({saved->step, saved->error});
        if (saved->leave) released.push_back({index, saved->error});
      }
    }
    for (auto& one : effects.warnings) warnings.push_back(std::move(one));
    for (auto& one : effects.notes) notes.push_back(std::move(one));
  }

  const int count;
  SteadyTime now{};
  control::SessionId session = 0;
  Members members;
  schedule::Plan current;
  bool trains = true;
  SnapshotPolicy policy;
  SnapshotRounds rounds{policy, kTotal};
  std::vector<std::int64_t> ordered;
  std::vector<std::pair<int, protocol::CopySource>> copies;
  std::vector<std::pair<std::int64_t, std::string>> ended;
  std::vector<std::pair<int, std::string>> released;  // may leave, and why without copies
  std::vector<std::string> warnings, notes;
};

TEST(SnapshotRounds, AreWholeWhenAllRanksHaveTheirs) {
  Rounds job;
  EXPECT_THAT(job.ordered, ElementsAre(10));
  job.stand_at(11);
  for (int i = 0; i < 2; ++i) job.answer(i, {.step = 10});
  EXPECT_THAT(job.ended, IsEmpty());
  EXPECT_THAT(job.ordered, ElementsAre(10)) << "one round at a time";
  job.answer(2, {.step = 10});
  EXPECT_THAT(job.ended, ElementsAre(std::pair(10, "")));
  EXPECT_THAT(job.ordered, ElementsAre(10, 20));
  for (int i = 0; i < 3; ++i) job.answer(i, {.step = 20});
  EXPECT_EQ(job.notes.size(), 1U) << "it is told once";
}

TEST(SnapshotRounds, ThatFailCostTheirSnapshotsAndComeLater) {
  Rounds job;
  job.stand_at(10);
  job.answer(1, {.step = 10, .error = "needs 9 GB"});
  EXPECT_THAT(job.ended, ElementsAre(std::pair(10, "worker 1: needs 9 GB")));
  EXPECT_THAT(job.warnings,
              ElementsAre(HasSubstr("needs 9 GB; the next ones come 20 steps later")));
  EXPECT_THAT(job.ordered, ElementsAre(10, 20));
  job.stand_at(20);
  job.answer(0, {.step = 20, .error = "needs 9 GB"});
  EXPECT_THAT(job.ordered, ElementsAre(10, 20, 40));
  job.answer(2, {.step = 20});  // of the round that is over
  for (int i = 0; i < 3; ++i) job.answer(i, {.step = 40});
  EXPECT_THAT(job.ordered, ElementsAre(10, 20, 40, 30)) << "again each 10 steps";
}

TEST(SnapshotRounds, LieFurtherAheadAfterALateOne) {
  Rounds job;
  job.answer(0, {.step = 10, .late = true, .at = 19});
  EXPECT_THAT(job.ended, ElementsAre(std::pair(10, "SAVE came too late")));
  EXPECT_THAT(job.ordered, ElementsAre(10, 30)) << "two steps above 19 at least";
  EXPECT_THAT(job.warnings, IsEmpty());
}

TEST(SnapshotRounds, AskARankThatDoesNotTrainOnlyOnce) {
  Rounds job;
  job.answer(0, {.step = 10, .late = true, .at = 7});
  EXPECT_THAT(job.ordered, ElementsAre(10));
  job.trains = false;
  job.advance();
  job.trains = true;
  job.advance();
  EXPECT_THAT(job.ordered, ElementsAre(10, 10)) << "of the next generation";
}

TEST(SnapshotRounds, CostOnePercentOfTheTimeAtMost) {
  Rounds job(NeighborCopies::kOff);
  for (int i = 0; i < 3; ++i) {
    job.members.status(i, {.epoch = 1, .step = 10, .stage = i, .step_seconds = 0.5});
  }
  const auto all = [&](std::int64_t step, double seconds) {
    for (int i = 0; i < 3; ++i) job.answer(i, {.step = step, .seconds = i == 1 ? seconds : 0});
  };
  all(10, 0.05);  // 10 steps would do
  all(20, 0.2);   // 40, and a quarter for good measure
  EXPECT_THAT(job.ordered, ElementsAre(10, 20, 50));
  EXPECT_THAT(job.rounds.state(), HasSubstr("each 50 steps, since"));
  all(50, 0.15);
  EXPECT_THAT(job.ordered, ElementsAre(10, 20, 50, 50)) << "as before";
}

constexpr auto kFull = protocol::SaveTrouble::kFull;

void all_have(Rounds& job, std::int64_t step) {
  for (int i = 0; i < job.count; ++i) {
    const std::string name = "layer-" + std::to_string(i);
    job.answer(i, {.step = step, .files = {{.name = name, .bytes = 8, .sha256 = "x"}}});
  }
}

void all_copied(Rounds& job, std::int64_t step) {
  for (int copy = 0; copy < 4; ++copy) {  // one after the other
    for (int i = 0; i < job.count; ++i) job.answer(i, {.step = step, .copy = true});
  }
}

// The orders of copies since the last call, one after the other, as keeper and stage.
std::vector<std::pair<int, int>> taken_copies(Rounds& job) {
  std::vector<std::pair<int, int>> list;
  for (const auto& [keeper, source] : std::exchange(job.copies, {})) {
    list.emplace_back(keeper, source.first_layer);
  }
  return list;
}

TEST(SnapshotRounds, AreWholeWhenAllNeighborsHaveCopiesToo) {
  Rounds job;
  job.stand_at(11);
  all_have(job, 10);
  EXPECT_THAT(job.ended, IsEmpty());
  ASSERT_EQ(job.copies.size(), 3U);
  for (const auto& [keeper, source] : job.copies) {
    const int stage = (keeper + 2) % 3;  // the one before, cyclic
    const schedule::RankPlace& rank = job.current.ranks[static_cast<std::size_t>(stage)];
    EXPECT_EQ(source.ip, rank.ip);
    EXPECT_EQ(source.data_port, rank.data_port);
    EXPECT_EQ(source.first_layer, job.current.stages[static_cast<std::size_t>(stage)].first);
    EXPECT_EQ(source.files.front().name, "layer-" + std::to_string(stage));
  }
  job.answer(0, {.step = 10});  // no second answer to the first order
  job.answer(0, {.step = 10, .copy = true});
  job.answer(1, {.step = 10, .copy = true});
  EXPECT_THAT(job.ended, IsEmpty());
  job.answer(2, {.step = 10, .copy = true});
  EXPECT_THAT(job.ended, ElementsAre(std::pair(10, "")));
  EXPECT_THAT(job.rounds.state(), HasSubstr("each 10 steps, with copies on neighbors"));
}

TEST(SnapshotRounds, GoOnWithoutCopiesWhereMemoryLacksIfTheyMay) {
  Rounds job;
  job.stand_at(11);
  all_have(job, 10);
  job.answer(1, {.step = 10, .error = "a copy needs 9 GB", .trouble = kFull, .copy = true});
  EXPECT_THAT(job.ended, ElementsAre(std::pair(10, ""))) << "the snapshots are there";
  EXPECT_THAT(job.rounds.state(),
              HasSubstr("without copies on neighbors: worker 1: a copy needs 9 GB"));
  job.copies.clear();
  all_have(job, 20);
  EXPECT_THAT(job.copies, IsEmpty());

  Rounds must(NeighborCopies::kOn);
  must.stand_at(11);
  all_have(must, 10);
  must.answer(1, {.step = 10, .error = "a copy needs 9 GB", .trouble = kFull, .copy = true});
  EXPECT_THAT(must.ended, ElementsAre(std::pair(10, "worker 1: a copy needs 9 GB")));

  Rounds off(NeighborCopies::kOff);
  off.stand_at(11);
  all_have(off, 10);
  EXPECT_THAT(off.copies, IsEmpty());
  EXPECT_THAT(off.ended, ElementsAre(std::pair(10, "")));
}

TEST(SnapshotRounds, KeepTheOlderSetUntilCopiesHaveFailedThreeTimes) {
  Rounds job;
  for (const std::int64_t step : {10, 20, 40}) {
    job.stand_at(step + 1);
    ASSERT_EQ(job.ordered.back(), step);
    all_have(job, step);
    job.answer(2, {.step = step, .error = "cannot be reached", .copy = true});
  }
  EXPECT_THAT(job.ended,
              ElementsAre(std::pair(10, "worker 2: cannot be reached"),
                          std::pair(20, "worker 2: cannot be reached"), std::pair(40, "")));
}

TEST(SnapshotRounds, ThatAreHalfCopiedStayForARecovery) {
  Rounds job;
  job.stand_at(11);
  all_have(job, 10);
  job.trains = false;
  job.advance();
  EXPECT_THAT(job.ended, IsEmpty());
}

TEST(SnapshotRounds, AreOfTheNextStepForARankThatLeaves) {
  Rounds job;
  job.stand_at(13);
  all_have(job, 10);
  all_copied(job, 10);
  ASSERT_THAT(job.ordered, ElementsAre(10, 20));
  job.leave(1);
  EXPECT_THAT(job.ordered, ElementsAre(10, 20, 14));
  job.advance();
  all_have(job, 14);
  EXPECT_THAT(job.released, IsEmpty()) << "its state is in no other memory";
  all_copied(job, 14);
  EXPECT_THAT(job.released, ElementsAre(std::pair(1, "")));
  EXPECT_THAT(job.ordered, ElementsAre(10, 20, 14, 20)) << "as before";
}

TEST(SnapshotRounds, ThatCameTooLateAreRepeatedForARankThatLeaves) {
  Rounds job;
  job.stand_at(13);
  job.leave(1);
  EXPECT_THAT(job.ordered, ElementsAre(10)) << "a round of a step that it has passed is open";
  all_have(job, 10);
  all_copied(job, 10);
  ASSERT_THAT(job.ordered, ElementsAre(10, 14));
  job.answer(0, {.step = 14, .late = true, .at = 15});
  EXPECT_THAT(job.released, IsEmpty());
  ASSERT_THAT(job.ordered, ElementsAre(10, 14, 17));
  all_have(job, 17);
  job.leave(2);
  EXPECT_THAT(job.ordered, ElementsAre(10, 14, 17)) << "it may have passed step 17";
  all_copied(job, 17);
  EXPECT_THAT(job.released, IsEmpty()) << "rank 2 keeps its copy, and leaves, too";
  ASSERT_EQ(job.ordered.size(), 4U);
  const std::int64_t last = job.ordered.back();
  all_have(job, last);
  all_copied(job, last);
  EXPECT_THAT(job.released, ElementsAre(std::pair(1, ""), std::pair(2, "")));
}

TEST(SnapshotRounds, BeginAMomentAfterTheFirstLeaveAndSeeAllThatLeave) {
  Rounds job;
  job.stand_at(13);
  all_have(job, 10);
  all_copied(job, 10);
  job.members.leave(1, "SIGTERM");
  job.advance();
  job.now += 900ms;
  job.members.leave(2, "SIGTERM");
  job.advance();
  EXPECT_THAT(job.ordered, ElementsAre(10, 20));
  job.now += 100ms;
  job.advance();
  EXPECT_THAT(job.ordered, ElementsAre(10, 20, 14));
  taken_copies(job);
  all_have(job, 14);
  EXPECT_THAT(taken_copies(job), ElementsAre(std::pair(0, 1))) << "one at a time";
  job.answer(0, {.step = 14, .copy = true});
  EXPECT_THAT(taken_copies(job), ElementsAre(std::pair(0, 2)));
  EXPECT_THAT(job.released, IsEmpty());
  job.answer(0, {.step = 14, .copy = true});
  EXPECT_THAT(job.released, ElementsAre(std::pair(1, ""), std::pair(2, "")));
  EXPECT_THAT(taken_copies(job), IsEmpty()) << "stage 0 stays, and has its snapshot";
}

TEST(SnapshotRounds, TakeNoCopyOfARankThatLeavesFromAKeeperThatHasFailed) {
  Rounds job(NeighborCopies::kAuto, 4);
  job.stand_at(5);
  job.leave({1, 2});
  const std::int64_t step = job.ordered.back();
  all_have(job, step);
  EXPECT_THAT(taken_copies(job), ElementsAre(std::pair(0, 3), std::pair(3, 1)));
  job.answer(3, {.step = step, .error = "a copy needs 9 GB", .trouble = kFull, .copy = true});
  job.answer(0, {.step = step, .copy = true});
  EXPECT_THAT(taken_copies(job), ElementsAre(std::pair(0, 1)));
  EXPECT_THAT(job.released, IsEmpty());
  for (int copy = 0; copy < 2; ++copy) job.answer(0, {.step = step, .copy = true});
  EXPECT_THAT(job.released, ElementsAre(std::pair(1, ""), std::pair(2, "")));
  EXPECT_THAT(job.warnings, ElementsAre(HasSubstr("worker 3: a copy needs 9 GB")));
}

TEST(SnapshotRounds, SayOfWhomNobodyKeepsACopy) {
  Rounds job(NeighborCopies::kAuto, 6);
  job.stand_at(5);
  job.leave({1, 2, 3, 4, 5});
  const std::int64_t step = job.ordered.back();
  all_have(job, step);
  for (int copy = 0; copy < 4; ++copy) job.answer(0, {.step = step, .copy = true});
  ASSERT_EQ(job.released.size(), 5U);
  EXPECT_EQ(job.released[0].second, "more workers leave than the others can keep copies of");
}

// It took its snapshot before it was told to end, and may be several steps further now.
TEST(SnapshotRounds, ThatAreOlderThanItsLeaveDoNotReleaseARank) {
  Rounds job;
  job.stand_at(9);
  job.leave(1);
  EXPECT_THAT(job.ordered, ElementsAre(10)) << "it is soon over";
  all_have(job, 10);
  all_copied(job, 10);
  EXPECT_THAT(job.released, IsEmpty());
  EXPECT_THAT(job.ordered, ElementsAre(10, 11)) << "step 10 is whole, whatever is reported";
  job.leave(2);
  EXPECT_THAT(job.ordered, ElementsAre(10, 11));
  all_have(job, 11);
  all_copied(job, 11);
  EXPECT_THAT(job.released, ElementsAre(std::pair(1, "")));
  EXPECT_THAT(job.ordered, ElementsAre(10, 11, 12));
  all_have(job, 12);
  all_copied(job, 12);
  EXPECT_THAT(job.released, ElementsAre(std::pair(1, ""), std::pair(2, "")));
}

// A switch may move its stage, so it may not end when the generation does.
TEST(SnapshotRounds, ReleaseNoRankForASwitch) {
  Rounds job;
  job.leave(1);
  job.trains = false;
  job.advance();
  EXPECT_THAT(job.ended, ElementsAre(std::pair(1, "the generation is over")));
  EXPECT_THAT(job.released, IsEmpty());
  job.current.ranks[1].pod = "another";
  job.members.hello(++job.session, {.member = {.pod = "another", .worker_index = 3}}, job.now);
  job.trains = true;
  job.advance();
  EXPECT_THAT(job.released, IsEmpty()) << "it has no stage any more, and ends by itself";
}

TEST(SnapshotRounds, KeepNoRankWhoseStateNobodyWouldKeep) {
  Rounds off(NeighborCopies::kOff);
  off.leave(1);
  EXPECT_THAT(off.released, ElementsAre(std::pair(1, "no copies are wanted")));
  EXPECT_THAT(off.ordered, ElementsAre(10));

  Rounds all;
  for (int i = 0; i < 3; ++i) all.members.leave(i, "SIGTERM");
  all.advance();
  EXPECT_EQ(all.released.size(), 3U);
  all.advance();
  EXPECT_EQ(all.released.size(), 3U) << "once";

  Rounds full;
  full.leave(1);
  all_have(full, 1);
  full.answer(2, {.step = 1, .error = "a copy needs 9 GB", .trouble = kFull, .copy = true});
  EXPECT_THAT(full.released, IsEmpty()) << "worker 0 may have the room";
  full.answer(0, {.step = 1, .error = "a copy needs 9 GB", .trouble = kFull, .copy = true});
  EXPECT_THAT(full.released, ElementsAre(std::pair(1, "worker 0: a copy needs 9 GB")));
  EXPECT_THAT(full.ended.back(), std::pair(1, "")) << "the others keep their snapshots";

  Rounds fails;
  fails.leave(1);
  fails.answer(2, {.step = 1, .error = "needs 9 GB"});
  EXPECT_THAT(fails.released, ElementsAre(std::pair(1, "worker 2: needs 9 GB")));
}

// As a coordinator leaves them that dies in the middle of a round.
TEST(SnapshotRounds, ThatWereLeftHalfDoneAreSettled) {
  const auto settled = [](std::vector<std::vector<protocol::Held>> held, std::int64_t at) {
    Rounds job(NeighborCopies::kOff);
    job.trains = false;
    job.advance();
    job.ended.clear();
    for (int i = 0; i < 3; ++i) {
      const auto index = static_cast<std::size_t>(i);
      for (protocol::Held& one : held[index]) {
        const int stage = one.copy ? (i + 2) % 3 : i;
        const auto layers = job.current.stages[static_cast<std::size_t>(stage)];
        one.first = layers.first;
        one.last = layers.last;
        one.snapshot = true;
      }
      job.members.inventory(i, {.history = 1, .held = held[index]});
    }
    job.trains = true;
    job.stand_at(at);
    return job.ended;
  };
  const protocol::Held at_10{.step = 10}, at_20{.step = 20};
  const protocol::Held copy_10{.step = 10, .copy = true}, copy_20{.step = 20, .copy = true};
  EXPECT_THAT(settled({{at_10, at_20}, {at_10}, {at_10, at_20}}, 23),
              ElementsAre(std::pair(10, ""), std::pair(20, "its round was left half done")));
  EXPECT_THAT(settled({{at_10, at_20}, {at_10, at_20}, {at_10, at_20}}, 23),
              ElementsAre(std::pair(20, "")));
  EXPECT_THAT(
      settled({{at_10, at_20, copy_10}, {at_10, at_20, copy_10, copy_20}, {at_10, at_20, copy_10}},
              23),
      ElementsAre(std::pair(10, ""), std::pair(20, "its round was left half done")))
      << "only that set outlives any worker";
  EXPECT_THAT(settled({{at_10}, {at_10}, {at_20}}, 23), IsEmpty());
  EXPECT_THAT(settled({{at_10}, {at_10}, {at_10}}, 23), IsEmpty()) << "there is nothing to do";
}

TEST(SnapshotRounds, EndWithTheGeneration) {
  Rounds job;
  job.trains = false;
  job.advance();
  EXPECT_THAT(job.ended, ElementsAre(std::pair(10, "the generation is over")));
  job.advance();
  EXPECT_EQ(job.ended.size(), 1U);
  job.trains = true;
  job.stand_at(12);
  EXPECT_THAT(job.ordered, ElementsAre(10, 20));
}

TEST(SnapshotRounds, EndAtTheirDeadline) {
  Rounds job;
  job.answer(0, {.step = 10});
  job.now += 60s;
  job.advance();
  EXPECT_THAT(job.warnings, ElementsAre(HasSubstr("no answer from workers 1, 2")));
}

TEST(SnapshotRounds, AreOfNoUseWithReplicasOrAtTheEnd) {
  Rounds job;
  job.current.micro_batches = {4, 4};
  job.advance();
  EXPECT_THAT(job.ended, ElementsAre(std::pair(10, "the generation is over")));
  job.current.micro_batches = {8};
  job.stand_at(kTotal - 5);
  EXPECT_THAT(job.ordered, ElementsAre(10));
}

}  // namespace snapshot_rounds_test
}  // namespace weir::coordinator::test
