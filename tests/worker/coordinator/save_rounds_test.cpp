// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/save_rounds.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/coordinator/switch_world.h"

namespace weir::coordinator::test {
namespace save_rounds_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Steps = std::vector<std::int64_t>;

constexpr std::int64_t kTotal = 1000;

// Three ranks that train plan 1, one layer each, 8 micro-batches of one sample.
struct Rounds {
  explicit Rounds(CheckpointPolicy policy = {.interval_steps = 10})
      : Rounds(std::move(policy), plan(1, schedule::Trigger::kInitial)) {}
  Rounds(CheckpointPolicy policy, const schedule::Plan& in_force)
      : current(in_force), saves(with_defaults(std::move(policy)), kTotal, 3) {
    for (int i = 0; i < 3; ++i) members.hello(++session, {.member = member(i)}, now);
    advance();
  }
  static CheckpointPolicy with_defaults(CheckpointPolicy policy) {
    policy.on = true;
    if (policy.period == std::chrono::nanoseconds(0)) policy.period = 10min;
    return policy;
  }
  static protocol::SavedFile file(int layer) {
    return {.name = "layer-0000" + std::to_string(layer), .bytes = 10 + layer, .sha256 = "x"};
  }

  SaveRounds::Training training() const {
    return {.plan = broken ? nullptr : &current, .compressed = &compressed};
  }
  void advance() { take(saves.advance(training(), members, now)); }
  void stand_at(std::int64_t step) {
    for (int i = 0; i < 3; ++i) members.status(i, {.epoch = 1, .step = step, .stage = i});
    advance();
  }
  void answer(int index, protocol::Saved saved) {
    if (saved.error.empty() && !saved.late) saved.files = {file(index)};
    take(saves.on_saved(index, saved, training(), members, now));
    advance();
  }
  void all_saved(std::int64_t step) {
    for (int i = 0; i < 3; ++i) answer(i, {.step = step});
  }
  void committed(std::int64_t step, const std::string& error = "") {
    take(saves.committed(step, {.error = error}, members, now));
    advance();
  }
  void complete(std::int64_t step) {
    all_saved(step);
    committed(step);
  }
  // A step has ended; in_row: so many up to it changed no parameter.
  void trained(std::int64_t step, int in_row = 0) {
    saves.on_status({.epoch = 1, .step = step, .skipped_in_row = in_row});
    stand_at(step);
  }
  void removed() {
    removals.clear();
    saves.removed();
    advance();
  }
  void leave(int index, const std::string& reason = "SIGTERM") {
    members.leave(index, reason);
    advance();
  }
  // Steps of the SAVEs to rank 0 since the last look.
  Steps ordered() {
    Steps steps;
    for (const auto& [index, message] : std::exchange(sent, {})) {
      const auto* save = std::get_if<protocol::Save>(&message);
      if (index == 0 && save != nullptr) steps.push_back(save->step);
    }
    return steps;
  }
  std::vector<protocol::Saved> told(int index) const {
    std::vector<protocol::Saved> list;
    for (const auto& [to, message] : sent) {
      const auto* saved = std::get_if<protocol::Saved>(&message);
      if (to == index && saved != nullptr) list.push_back(*saved);
    }
    return list;
  }
  void take(const SaveRounds::Effects& effects) {
    sent.insert(sent.end(), effects.send.begin(), effects.send.end());
    warnings.insert(warnings.end(), effects.warnings.begin(), effects.warnings.end());
    if (effects.commit) commits.push_back(*effects.commit);
    if (effects.remove) removals.push_back(*effects.remove);
    if (!effects.unusable.empty()) unusable = effects.unusable;
  }

  SteadyTime now = SteadyTime(1h);
  schedule::Plan current;
  CompressedSteps compressed;
  bool broken = false;
  control::SessionId session = 0;
  Members members;
  SaveRounds saves;
  Outgoing sent;
  std::vector<CheckpointOrder> commits;
  std::vector<CheckpointRemoval> removals;
  std::vector<std::string> warnings;
  std::string unusable;
};

TEST(SaveRounds, OrderEachMultipleOfTheIntervalOneAtATime) {
  Rounds rounds;
  EXPECT_EQ(rounds.ordered(), Steps{10});
  rounds.stand_at(12);
  EXPECT_EQ(rounds.ordered(), Steps{});  // 10 is not yet answered

  rounds.all_saved(10);
  EXPECT_EQ(rounds.saves.newest(), -1);  // written, but without a manifest
  rounds.committed(10);

  EXPECT_EQ(rounds.saves.newest(), 10);
  EXPECT_EQ(rounds.told(2).back().step, 10);
  EXPECT_FALSE(rounds.told(2).back().leave);
  EXPECT_EQ(rounds.ordered(), Steps{20});
}

TEST(SaveRounds, CommitAllLayersWithWhatAManifestNeeds) {
  Rounds rounds({.found = {{.step = 4, .samples = 64}}, .interval_steps = 10});
  rounds.stand_at(4);
  rounds.compressed.begin(4, 1, false);
  rounds.compressed.change(7, true);
  rounds.all_saved(10);

  ASSERT_EQ(rounds.commits.size(), 1U);
  const CheckpointOrder& order = rounds.commits[0];
  EXPECT_EQ(order.checkpoint.compressed_steps, 1 + 3);
  EXPECT_EQ(order.checkpoint.step, 10);
  EXPECT_EQ(order.checkpoint.samples, 64 + 6 * 8);  // since step 4: 8 samples a step
  EXPECT_EQ(order.revision, 1U);
  EXPECT_THAT(order.plan_json, HasSubstr("\"revision\":1"));
  ASSERT_EQ(order.files.size(), 3U);
  EXPECT_EQ(order.files[2].bytes, 12);
  EXPECT_THAT(order.keep, ElementsAre(10, 4));
  rounds.committed(10);
  EXPECT_EQ(rounds.saves.newest_checkpoint().compressed_steps, 1 + 3);
}

TEST(SaveRounds, KeepTheNewestOnes) {
  Rounds rounds(
      {.found = {{.step = 3}, {.step = 5}, {.step = 7}}, .interval_steps = 10, .keep = 3});
  for (const std::int64_t step : {10, 20}) {
    rounds.all_saved(step);
    rounds.committed(step);
    rounds.trained(step + 1);
  }

  EXPECT_THAT(rounds.commits[0].keep, ElementsAre(10, 7, 5));
  EXPECT_THAT(rounds.commits[1].keep, ElementsAre(20, 10, 7));
}

TEST(SaveRounds, ByTimeNameAStepThatNoRankHasPassed) {
  Rounds rounds({.period = 1min});
  rounds.stand_at(70);
  EXPECT_EQ(rounds.ordered(), Steps{});
  rounds.now += 1min;
  rounds.stand_at(80);
  EXPECT_EQ(rounds.ordered(), Steps{81});
  rounds.all_saved(81);
  rounds.committed(81);
  rounds.now += 59s;
  rounds.stand_at(90);
  EXPECT_EQ(rounds.ordered(), Steps{});
}

TEST(SaveRounds, LookFurtherAheadWhenAnOrderCameTooLate) {
  Rounds rounds({.period = 1min});
  rounds.now += 1min;
  rounds.stand_at(80);
  ASSERT_EQ(rounds.ordered(), Steps{81});

  rounds.answer(1, {.step = 81, .late = true, .at = 83});
  EXPECT_EQ(rounds.ordered(), Steps{85});
  rounds.answer(2, {.step = 81, .late = true, .at = 83});  // of the round before
  EXPECT_EQ(rounds.ordered(), Steps{});
  rounds.answer(0, {.step = 85, .late = true, .at = 90});
  EXPECT_EQ(rounds.ordered(), Steps{94});
  EXPECT_THAT(rounds.warnings, IsEmpty());
}

// Its generation has just broken, and it tells so only after it has waited for a plan.
TEST(SaveRounds, AskARankThatDoesNotTrainOnlyOnce) {
  Rounds rounds;
  ASSERT_EQ(rounds.ordered(), Steps{10});
  rounds.answer(1, {.step = 10, .late = true, .at = 7});
  rounds.stand_at(7);
  EXPECT_EQ(rounds.ordered(), Steps{});
  rounds.broken = true;
  rounds.advance();
  rounds.broken = false;
  rounds.stand_at(7);
  EXPECT_EQ(rounds.ordered(), Steps{10}) << "of the next generation";
  rounds.complete(10);
  EXPECT_EQ(rounds.saves.newest(), 10);
}

TEST(SaveRounds, SaveTheLastStep) {
  Rounds rounds({.period = 1h});
  rounds.stand_at(kTotal - 2);
  EXPECT_EQ(rounds.ordered(), Steps{});
  rounds.stand_at(kTotal - 1);
  EXPECT_EQ(rounds.ordered(), Steps{kTotal});
  rounds.all_saved(kTotal);
  rounds.committed(kTotal);
  rounds.stand_at(kTotal);
  EXPECT_EQ(rounds.ordered(), Steps{});
  EXPECT_EQ(rounds.saves.newest(), kTotal);
}

TEST(SaveRounds, ServeARankThatWantsToLeaveAtOnce) {
  Rounds rounds({.interval_steps = 500});
  ASSERT_EQ(rounds.ordered(), Steps{500});
  rounds.stand_at(40);

  rounds.leave(1);
  EXPECT_EQ(rounds.ordered(), Steps{41});  // instead of 500
  rounds.leave(2);
  EXPECT_EQ(rounds.ordered(), Steps{});  // the same round serves both
  rounds.all_saved(41);
  rounds.committed(41);

  EXPECT_FALSE(rounds.told(0).back().leave);
  EXPECT_TRUE(rounds.told(1).back().leave);
  EXPECT_TRUE(rounds.told(2).back().leave);
  EXPECT_EQ(rounds.ordered(), Steps{500});  // nobody is served twice
}

TEST(SaveRounds, DoNotLetARankLeaveWithASaveOfStepsLongAgo) {
  Rounds rounds;
  ASSERT_EQ(rounds.ordered(), Steps{10});
  rounds.stand_at(25);  // the disk is slow
  rounds.leave(1);
  EXPECT_EQ(rounds.ordered(), Steps{});
  rounds.all_saved(10);
  rounds.committed(10);

  EXPECT_FALSE(rounds.told(1).back().leave);
  EXPECT_EQ(rounds.ordered(), Steps{26});
}

TEST(SaveRounds, LetARankLeaveThatIsToldOfAnotherStepBecauseOneWasTooLate) {
  Rounds rounds({.period = 1h});
  rounds.stand_at(40);
  rounds.leave(1);
  ASSERT_EQ(rounds.ordered(), Steps{41});
  rounds.answer(1, {.step = 41});  // it waits there
  rounds.answer(0, {.step = 41, .late = true, .at = 42});
  EXPECT_EQ(rounds.ordered(), Steps{44});
  rounds.all_saved(44);
  rounds.committed(44);

  EXPECT_TRUE(rounds.told(1).back().leave);
}

TEST(SaveRounds, ServeAWorkerWithoutAStage) {  // it may be the coordinator
  Rounds rounds({.period = 1h});
  rounds.members.hello(++rounds.session, {.member = member(3)}, rounds.now);
  rounds.stand_at(40);
  rounds.leave(3);
  EXPECT_EQ(rounds.ordered(), Steps{41});
  rounds.all_saved(41);
  rounds.committed(41);
  EXPECT_TRUE(rounds.told(3).back().leave);
}

TEST(SaveRounds, IgnoreAFinishedRank) {
  Rounds rounds({.period = 1h});
  rounds.stand_at(40);
  rounds.leave(1, "finished");
  EXPECT_EQ(rounds.ordered(), Steps{});
}

TEST(SaveRounds, GiveUpWithTheGenerationAndBeginAgainWithTheNext) {
  Rounds rounds;
  ASSERT_EQ(rounds.ordered(), Steps{10});
  rounds.answer(0, {.step = 10});
  rounds.broken = true;
  rounds.advance();
  rounds.answer(1, {.step = 10});
  rounds.answer(2, {.step = 10});
  EXPECT_THAT(rounds.commits, IsEmpty());

  rounds.broken = false;
  rounds.stand_at(0);
  EXPECT_EQ(rounds.ordered(), Steps{10});
  rounds.all_saved(10);
  EXPECT_EQ(rounds.commits.size(), 1U);
}

TEST(SaveRounds, FinishACommitAlthoughTheGenerationBreaks) {
  Rounds rounds;
  rounds.all_saved(10);
  rounds.broken = true;
  rounds.advance();
  rounds.committed(10);
  EXPECT_EQ(rounds.saves.newest(), 10);
}

TEST(SaveRounds, TrainOnAfterAFailureButNotForEver) {
  Rounds rounds;
  rounds.stand_at(5);
  rounds.answer(1, {.step = 10, .error = "no space left on device"});
  EXPECT_THAT(rounds.warnings.back(), HasSubstr("no space left"));
  EXPECT_EQ(rounds.unusable, "");
  EXPECT_EQ(rounds.ordered(), (Steps{10, 20}));
  rounds.all_saved(20);
  rounds.committed(20, "rename: input/output error");
  EXPECT_EQ(rounds.unusable, "");
  rounds.answer(0, {.step = 30, .error = "no space left on device"});
  EXPECT_THAT(rounds.unusable, HasSubstr("no space left on device"));
  rounds.ordered();
  rounds.leave(1);
  rounds.stand_at(100);
  EXPECT_EQ(rounds.ordered(), Steps{}) << "nothing that would stay unfinished";
}

constexpr auto kFull = protocol::SaveTrouble::kFull;
constexpr auto kBusy = protocol::SaveTrouble::kBusy;

TEST(SaveRounds, RemoveWhatAFailedSaveHasLeft) {
  Rounds rounds;
  rounds.answer(1, {.step = 10, .error = "input/output error"});

  ASSERT_EQ(rounds.removals.size(), 1U);
  EXPECT_EQ(rounds.removals[0], (CheckpointRemoval{.complete = {}, .unfinished = {10}}));
  // A rank that was still writing then.
  rounds.answer(2, {.step = 10});
  ASSERT_EQ(rounds.removals.size(), 2U);
  EXPECT_EQ(rounds.removals[1], (CheckpointRemoval{.complete = {}, .unfinished = {10}}));
}

TEST(SaveRounds, OnAFullDiskTheOldestCheckpointGoesAndTheSaveIsTriedAgain) {
  Rounds rounds({.found = {{.step = 10}, {.step = 20}}, .interval_steps = 100});
  rounds.trained(99);
  ASSERT_EQ(rounds.ordered(), Steps{100});
  for (int round = 0; round < 5; ++round) {  // no failure of these ends training
    rounds.answer(1, {.step = 100, .error = "no space left on device", .trouble = kFull});
    if (round > 0) break;
    ASSERT_FALSE(rounds.removals.empty());
    EXPECT_EQ(rounds.removals[0], (CheckpointRemoval{.complete = {10}, .unfinished = {100}}));
    EXPECT_EQ(rounds.ordered(), Steps{}) << "not before there is room";
    rounds.removed();
    EXPECT_EQ(rounds.ordered(), Steps{100}) << "and then at once";
  }
  EXPECT_EQ(rounds.saves.newest(), 20) << "the newest one stays";
  EXPECT_EQ(rounds.unusable, "");
  rounds.removed();
  EXPECT_EQ(rounds.removals.size(), 0U);
}

// The last steps end while the disk completes a checkpoint: they prove it good, so the one before
// may go, and the last step is saved.
TEST(SaveRounds, OnAFullDiskTheLastStepIsSavedAlthoughTrainingWasFasterThanTheDisk) {
  Rounds rounds({.found = {{.step = 980}}, .interval_steps = 990});
  rounds.trained(989);
  ASSERT_EQ(rounds.ordered(), Steps{990});
  rounds.all_saved(990);
  rounds.trained(kTotal);
  rounds.committed(990);
  ASSERT_EQ(rounds.ordered(), Steps{kTotal});

  rounds.answer(1, {.step = kTotal, .error = "no space left on device", .trouble = kFull});
  ASSERT_FALSE(rounds.removals.empty());
  EXPECT_EQ(rounds.removals[0], (CheckpointRemoval{.complete = {980}, .unfinished = {kTotal}}));
  EXPECT_THAT(rounds.told(0), IsEmpty());
  rounds.removed();
  EXPECT_EQ(rounds.ordered(), Steps{kTotal});
}

TEST(SaveRounds, OnAFullDiskARankThatLeavesWaitsForTheSecondTry) {
  Rounds rounds({.found = {{.step = 10}, {.step = 20}}, .interval_steps = 500});
  rounds.trained(30);
  rounds.ordered();
  rounds.leave(1);
  ASSERT_EQ(rounds.ordered(), Steps{31});

  rounds.answer(0, {.step = 31, .error = "no space left on device", .trouble = kFull});
  EXPECT_THAT(rounds.told(1), IsEmpty());
  rounds.removed();
  ASSERT_EQ(rounds.ordered(), Steps{31});
  rounds.complete(31);

  EXPECT_TRUE(rounds.told(1).back().leave);
  EXPECT_EQ(rounds.told(1).back().error, "");
}

TEST(SaveRounds, GiveUpAfterADeadlineAndTrainOn) {
  Rounds rounds({.interval_steps = 10, .deadline = 100s});
  for (const std::int64_t step : {10, 20, 30, 40, 50}) {
    EXPECT_EQ(rounds.ordered(), Steps{step});
    rounds.answer(0, {.step = step});
    rounds.now += 101s;
    rounds.stand_at(step);
    EXPECT_THAT(rounds.warnings.back(), HasSubstr("no answer within 100 s from workers 1, 2"));
  }
  EXPECT_EQ(rounds.unusable, "") << "a disk that stands still ends nothing";
  rounds.answer(1, {.step = 10});  // much too late
  rounds.complete(60);
  EXPECT_EQ(rounds.saves.newest(), 60);
}

TEST(SaveRounds, SayThatACommitTakesLongAndTakeItWhenItComes) {
  Rounds rounds({.interval_steps = 10, .deadline = 100s});
  rounds.all_saved(10);
  rounds.now += 101s;
  rounds.advance();
  rounds.advance();
  ASSERT_EQ(rounds.warnings.size(), 1U);
  EXPECT_THAT(rounds.warnings[0], HasSubstr("has not completed it within 100 s"));
  rounds.committed(10);
  EXPECT_EQ(rounds.saves.newest(), 10);
}

TEST(SaveRounds, DoNotEndTrainingBecauseTheDiskDoesNotKeepUp) {
  Rounds rounds;
  for (const std::int64_t step : {10, 20, 30, 40}) {
    rounds.answer(1, {.step = step, .error = "still being written", .trouble = kBusy});
  }
  EXPECT_EQ(rounds.unusable, "");
}

TEST(SaveRounds, KeepTheNewestCheckpointThatHasProvedGood) {
  Rounds rounds({.interval_steps = 10, .keep = 1});
  rounds.complete(10);
  rounds.trained(12);  // step 10 has proved good
  rounds.complete(20);
  EXPECT_THAT(rounds.commits.back().keep, ElementsAre(20, 10));
  rounds.trained(21, 1);  // what was saved at 20 gives no number
  EXPECT_THAT(rounds.removals, IsEmpty());

  rounds.trained(22);
  ASSERT_EQ(rounds.removals.size(), 1U);
  EXPECT_EQ(rounds.removals[0], (CheckpointRemoval{.complete = {10}, .unfinished = {}}));
}

TEST(SaveRounds, AreNotOrderedWhileStepsAreSkipped) {
  Rounds rounds;
  rounds.complete(10);
  rounds.ordered();
  rounds.all_saved(20);
  rounds.trained(21, 1);
  rounds.committed(20);
  rounds.trained(35, 15);
  EXPECT_EQ(rounds.ordered(), Steps{});

  rounds.trained(36);
  EXPECT_EQ(rounds.ordered(), Steps{40});
}

TEST(SaveRounds, CountFailuresInARow) {
  Rounds rounds;
  for (const std::int64_t step : {10, 30, 50}) {
    rounds.answer(1, {.step = step, .error = "no memory"});
    rounds.all_saved(step + 10);
    rounds.committed(step + 10);
  }
  EXPECT_EQ(rounds.unusable, "");
}

TEST(SaveRounds, AreNotCompleteWithoutEveryLayer) {
  Rounds rounds;
  for (int i = 0; i < 3; ++i) {
    protocol::Saved saved{.step = 10};
    saved.files = {Rounds::file(i == 2 ? 1 : i)};  // layer 1 twice
    rounds.take(rounds.saves.on_saved(i, saved, rounds.training(), rounds.members, rounds.now));
  }
  EXPECT_THAT(rounds.commits, IsEmpty());
  EXPECT_THAT(rounds.warnings.back(), HasSubstr("layers are missing"));
}

TEST(SaveRounds, ForgetADamagedCheckpointOnce) {
  Rounds rounds({.found = {{.step = 10}, {.step = 20}}, .interval_steps = 500});
  EXPECT_EQ(rounds.saves.newest(), 20);
  rounds.take(rounds.saves.on_bad(1, {.step = 20, .reason = "layer-00001: another SHA-256"}));
  EXPECT_EQ(rounds.saves.newest(), 10);
  EXPECT_EQ(rounds.warnings.size(), 1U);
  rounds.take(rounds.saves.on_bad(2, {.step = 20, .reason = "the same"}));
  EXPECT_EQ(rounds.warnings.size(), 1U);
  EXPECT_EQ(rounds.unusable, "");
  rounds.take(rounds.saves.on_bad(2, {.step = 10, .reason = "torn"}));
  EXPECT_THAT(rounds.unusable, HasSubstr("torn"));
}

// It may be that rank's view of a network disk.
TEST(SaveRounds, OneRanksWordAboutACheckpointRemovesNothing) {
  Rounds rounds({.found = {{.step = 10}, {.step = 20}}, .interval_steps = 100, .keep = 1});
  rounds.take(rounds.saves.on_bad(1, {.step = 20, .reason = "another SHA-256"}));
  EXPECT_EQ(rounds.saves.newest(), 10);
  rounds.trained(99);
  rounds.complete(100);
  EXPECT_THAT(rounds.commits.back().keep, testing::UnorderedElementsAre(100, 10, 20));
  EXPECT_THAT(rounds.removals, IsEmpty());

  rounds.trained(102);  // step 100 has proved good
  ASSERT_EQ(rounds.removals.size(), 1U);
  EXPECT_THAT(rounds.removals[0].complete, testing::UnorderedElementsAre(10, 20));
}

TEST(SaveRounds, DoNothingWithoutAFolder) {
  SaveRounds off(CheckpointPolicy{}, kTotal, 3);
  Rounds world;
  const auto effects = off.advance(world.training(), world.members, world.now + 24h);
  EXPECT_THAT(effects.send, IsEmpty());
  EXPECT_EQ(off.newest(), -1);
}

// Three replicas of one stage: 2 is gone, the others save its part too.
TEST(SaveRounds, AskTheOthersForTheLayersOfAReplicaThatIsGone) {
  schedule::Plan three = plan(1, schedule::Trigger::kInitial, 1);
  three.micro_batches = {4, 4, 4};
  three.ranks.clear();
  for (int r = 0; r < 3; ++r) {
    three.ranks.push_back({.pod = "pod-" + std::to_string(r), .replica = r});
  }
  Rounds rounds({.interval_steps = 10}, three);
  ASSERT_EQ(rounds.ordered(), Steps{10});
  auto training = rounds.training();
  training.lost = {2};

  rounds.take(rounds.saves.advance(training, rounds.members, rounds.now));
  ASSERT_EQ(rounds.sent.size(), 2U);
  const auto save = std::get<protocol::Save>(rounds.sent[0].second);
  EXPECT_EQ(save.step, 11) << "not that of the first order, of which an answer may be under way";
  EXPECT_THAT(save.replicas, ElementsAre(0, 1));

  for (const int r : {0, 1}) {
    protocol::Saved saved{.step = 11, .files = {Rounds::file(r)}};
    if (r == 0) saved.files.push_back(Rounds::file(2));
    rounds.take(rounds.saves.on_saved(r, saved, training, rounds.members, rounds.now));
  }
  ASSERT_EQ(rounds.commits.size(), 1U);
  EXPECT_EQ(rounds.commits[0].files.size(), 3U);
  EXPECT_THAT(rounds.warnings, IsEmpty());
}

}  // namespace save_rounds_test
}  // namespace weir::coordinator::test
