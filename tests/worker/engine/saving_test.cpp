// SPDX-License-Identifier: Apache-2.0
// Checkpoints as the engine sees them: copies of the ordered step, ranks that wait for a save, a
// stage that is filled from one.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/group.h"

namespace weir::engine::test {
namespace saving_test {

using schedule::Dispatch;
using schedule::Family;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kEndless = 1'000'000;
constexpr int kMicroBatches = 4;

schedule::Plan plan_in(const Group& group, int stages) {
  return plan_of(stages, group.layers(), kMicroBatches, Family::kOneFOneB, 1, Dispatch::kStrict);
}

schedule::Plan restart_from(const Group& group, int stages, std::int64_t step) {
  auto plan = plan_in(group, stages);
  plan.revision = 2;
  plan.trigger = schedule::Trigger::kRestart;
  plan.state = schedule::StateMove::kCheckpoint;
  plan.checkpoint_step = step;
  return plan;
}

void order(Group& group, int ranks, std::int64_t step) {
  for (int i = 0; i < ranks; ++i) group.engine(i).mailbox().put(protocol::Save{.step = step});
}
void tell(Group& group, int ranks, std::int64_t step, const std::string& error = "",
          bool leave = false) {
  for (int i = 0; i < ranks; ++i) {
    group.engine(i).mailbox().put(protocol::Saved{.step = step, .error = error, .leave = leave});
  }
}

TEST(Saving, OfAStepLetsAnotherCutGoOnFromThere) {
  constexpr int kSteps = 30, kSaved = 12;
  Saves saves;
  {
    Group group("mlp", 3, kSteps, 0, &saves);
    order(group, 3, kSaved);  // before the plan: no stage trains
    ASSERT_TRUE(eventually([&] { return saves.notes().size() == 3; }));
    ASSERT_EQ(group.prepare(plan_in(group, 3)), "");
    ASSERT_EQ(group.commit(3, 1, 0), "");
    for (int i = 0; i < 3; ++i) {
      group.engine(i).mailbox().put(protocol::Go{1});
      group.engine(i).mailbox().put(protocol::Save{.step = kSaved});
    }
    ASSERT_TRUE(eventually([&] { return saves.copies(kSaved) == 3; }));
    tell(group, 3, kSteps);
    EXPECT_THAT(group.finish(), Each(Exit::kFinished));
  }
  Group other("mlp", 2, kSteps, 0, &saves);
  ASSERT_EQ(other.start(restart_from(other, 2, kSaved)), "");
  tell(other, 2, kSteps);
  EXPECT_THAT(other.finish(), Each(Exit::kFinished));

  const auto expected = reference_losses("mlp", kMicroBatches, kSteps);
  EXPECT_EQ(other.records(1).front().step, kSaved);
  EXPECT_EQ(losses_of(other.records(1)),
            std::vector<double>(expected.begin() + kSaved, expected.end()));
  EXPECT_EQ(other.engine(0).statistics().checkpoint_step, kSteps);
}

TEST(Saving, OfAStepThatIsOverIsAnsweredAtOnce) {
  Saves saves;
  Group group("mlp", 1, kEndless, 0, &saves);
  ASSERT_EQ(group.start(plan_in(group, 1)), "");
  ASSERT_TRUE(group.reaches(0, 5));

  order(group, 1, 2);

  ASSERT_TRUE(eventually([&] { return !saves.notes().empty(); }));
  EXPECT_THAT(saves.notes(), ElementsAre("late 2, beyond"));
  EXPECT_EQ(saves.copies(2), 0);
  group.engine(0).leave(kPatience);
  EXPECT_THAT(group.finish(), Each(Exit::kTerminated));
}

TEST(Saving, KeepsARankThatLeavesUntilItsCheckpointIsComplete) {
  Saves saves;
  Group group("mlp", 2, kEndless, 0, &saves);
  ASSERT_EQ(group.start(plan_in(group, 2)), "");
  ASSERT_TRUE(group.reaches(0, 5));
  for (int i = 0; i < 2; ++i) group.engine(i).leave_saved(kPatience);

  const std::int64_t far = group.engine(0).statistics().step + 400;
  order(group, 2, far);
  ASSERT_TRUE(eventually([&] { return saves.copies(far) == 2; }));  // it trains on until then
  tell(group, 2, far - 1);   // some earlier one: not what it waits for
  order(group, 2, far + 3);  // another rank was too late for the first
  ASSERT_TRUE(eventually([&] { return saves.copies(far + 3) == 2; }));
  tell(group, 2, far + 3, "", true);

  EXPECT_THAT(group.finish(), Each(Exit::kTerminated));
  EXPECT_EQ(group.records(0).size(), static_cast<std::size_t>(far) + 3);
  EXPECT_EQ(group.records(1).size(), static_cast<std::size_t>(far) + 3);
}

TEST(Saving, DoesNotKeepARankBeyondItsGraceOrWithoutAStage) {
  Saves saves;
  Group group("mlp", 2, kEndless, 0, &saves);
  ASSERT_EQ(group.start(plan_in(group, 1)), "");
  ASSERT_TRUE(group.reaches(0, 3));

  group.engine(1).leave_saved(kPatience);                      // has no plan
  group.engine(0).leave_saved(std::chrono::milliseconds(20));  // nobody orders a save

  EXPECT_THAT(group.finish(), Each(Exit::kTerminated));
}

TEST(Saving, OfTheLastStepIsWaitedFor) {
  constexpr int kSteps = 6;
  for (const std::string failure : {"", "no space left on device"}) {
    Saves saves;
    Group group("mlp", 2, kSteps, 0, &saves);
    ASSERT_EQ(group.start(plan_in(group, 2)), "");
    ASSERT_TRUE(group.reaches(0, kSteps) && group.reaches(1, kSteps));

    order(group, 2, kSteps);  // never too late
    ASSERT_TRUE(eventually([&] { return saves.copies(kSteps) == 2; }));
    tell(group, 2, kSteps, failure);

    EXPECT_THAT(group.finish(), Each(failure.empty() ? Exit::kFinished : Exit::kCheckpoint));
  }
}

TEST(Saving, TellsOfADamagedCheckpointAndWaitsForAnotherPlan) {
  Saves saves;
  saves.failure = Error{Code::kInvalid, "layer-00001: another SHA-256"};
  Group group("mlp", 1, kEndless, 0, &saves);

  EXPECT_THAT(group.start(restart_from(group, 1, 20)), HasSubstr("another SHA-256"));

  EXPECT_THAT(saves.notes(), ElementsAre("bad 20: layer-00001: another SHA-256"));
  auto again = plan_in(group, 1);
  again.revision = 3;
  EXPECT_EQ(group.start(again), "");
  EXPECT_TRUE(group.reaches(0, 3));
  group.engine(0).leave(kPatience);
  EXPECT_THAT(group.finish(), Each(Exit::kTerminated));
}

TEST(Saving, EndsARankThatCannotReadAnyCheckpoint) {
  Saves saves;
  saves.failure = Error{Code::kUnavailable, "input/output error"};
  Group group("mlp", 1, kEndless, 0, &saves);

  EXPECT_THAT(group.start(restart_from(group, 1, 20)), HasSubstr("input/output error"));

  EXPECT_THAT(group.finish(), Each(Exit::kCheckpoint));
  EXPECT_TRUE(saves.notes().empty());
}

TEST(Saving, IsDoneWhenTheLastStepIsLoaded) {
  constexpr int kSteps = 4;
  Saves saves;
  {
    Group group("mlp", 1, kSteps, 0, &saves);
    ASSERT_EQ(group.start(plan_in(group, 1)), "");
    ASSERT_TRUE(group.reaches(0, kSteps));
    order(group, 1, kSteps);
    ASSERT_TRUE(eventually([&] { return saves.copies(kSteps) == 1; }));
    tell(group, 1, kSteps);
    EXPECT_THAT(group.finish(), Each(Exit::kFinished));
  }
  Group again("mlp", 1, kSteps, 0, &saves);
  ASSERT_EQ(again.start(restart_from(again, 1, kSteps)), "");

  EXPECT_THAT(again.finish(), Each(Exit::kFinished));
  EXPECT_TRUE(again.records(0).empty());
}

}  // namespace saving_test
}  // namespace weir::engine::test
