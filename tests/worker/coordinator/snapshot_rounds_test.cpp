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

// Three ranks that train plan 1, a snapshot each 10 steps.
struct Rounds {
  Rounds() {
    for (int i = 0; i < 3; ++i) members.hello(++session, {.member = member(i)}, now);
    advance();
  }
  void advance() { take(rounds.advance(trains ? &current : nullptr, members, now)); }
  void stand_at(std::int64_t step) {
    for (int i = 0; i < 3; ++i) members.status(i, {.epoch = 1, .step = step, .stage = i});
    advance();
  }
  void answer(int index, protocol::Saved saved) {
    saved.snapshot = true;
    take(rounds.on_saved(index, saved, members));
    advance();
  }
  void take(SnapshotRounds::Effects effects) {
    for (auto& [index, message] : effects.send) {
      if (const auto* const save = std::get_if<protocol::Save>(&message)) {
        EXPECT_TRUE(save->snapshot);
        if (index == 0) ordered.push_back(save->step);
      }
      if (const auto* const saved = std::get_if<protocol::Saved>(&message)) {
        EXPECT_TRUE(saved->snapshot);
        if (index == 0) ended.push_back({saved->step, saved->error});
      }
    }
    for (auto& one : effects.warnings) warnings.push_back(std::move(one));
    for (auto& one : effects.notes) notes.push_back(std::move(one));
  }

  SteadyTime now{};
  control::SessionId session = 0;
  Members members;
  schedule::Plan current = plan(1, schedule::Trigger::kInitial);
  bool trains = true;
  SnapshotRounds rounds{{.every_steps = 10, .deadline = 60s}, kTotal};
  std::vector<std::int64_t> ordered;
  std::vector<std::pair<std::int64_t, std::string>> ended;
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

TEST(SnapshotRounds, CostOnePercentOfTheTimeAtMost) {
  Rounds job;
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
