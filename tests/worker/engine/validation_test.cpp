// SPDX-License-Identifier: Apache-2.0
// Validation: when it is due, its messages, and whole pipelines that train as if there were none.
#include "worker/engine/validation.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/engine/fakes.h"
#include "tests/worker/engine/group.h"
#include "tests/worker/engine/rounds.h"

namespace weir::engine {
namespace validation_test {

using namespace std::chrono_literals;
using schedule::Dispatch;
using schedule::Family;
using test::Group;
using testing::Each;
using testing::ElementsAre;
using transport::Channel;
using transport::LinkEnd;

using Losses = std::vector<std::pair<std::int64_t, double>>;

TEST(ValidationDue, AtMultiplesOfTheIntervalAndAfterTheLastStep) {
  std::vector<std::int64_t> due;
  std::int64_t last = 0;
  for (std::int64_t completed = 1; completed <= 10; ++completed) {
    if (!validation_due(completed, 10, last, 4)) continue;
    due.push_back(completed);
    last = completed;
  }
  EXPECT_THAT(due, ElementsAre(4, 8, 10));
}

TEST(ValidationDue, NeverTwiceForAStepAndNeverWithoutAnInterval) {
  EXPECT_FALSE(validation_due(10, 10, 0, 0));
  EXPECT_FALSE(validation_due(10, 10, 10, 5));
  EXPECT_FALSE(validation_due(8, 100, 8, 4)) << "a generation that began there";
  EXPECT_TRUE(validation_due(9, 100, 7, 4)) << "8 was passed over";
}

// Stage 1 of `stages` against scripted peers.
struct Scripted {
  explicit Scripted(int stages)
      : stage(*device, journal, false, stages == 2), links(&peers, *device, 1, stages) {}

  Result<double> run(bool header_follows) {
    schedule::Plan plan;
    plan.schedule = {.k = 1, .micro_batch_size = 2, .caps = {2, 1}};
    plan.micro_batches = {4};
    plan.stages = {{0, 0}, {1, 1}};
    const StepParts parts = test::scripted_parts(stage, links, data, recorder, stopwatch, codec,
                                                 clock, [this] { return goes_on; });
    return run_validation(parts, {.plan = plan, .samples = 5, .header_follows = header_follows},
                          {});
  }

  std::unique_ptr<device::Device> device = device::make_host_device();
  std::shared_ptr<test::Journal> journal = std::make_shared<test::Journal>();
  weir::test::ManualClock clock;
  test::ScriptedCommunicator peers{&clock, journal};
  Recorder recorder;
  Stopwatch stopwatch{clock, recorder};
  BoundaryCodec codec = test::host_codec(*device);
  test::NoData data;
  test::FakeStage stage;
  StageLinks links;
  bool goes_on = true;
};
constexpr LinkEnd kIn{.peer_stage = 0, .channel = Channel::kForward, .sending = false};
constexpr LinkEnd kOut{.peer_stage = 2, .channel = Channel::kForward, .sending = true};

TEST(Validation, IsForwardsAloneInWholeMicroBatches) {
  Scripted rank(2);
  rank.peers.on_wait = [&] { rank.peers.deliver(kIn); };

  const auto loss = rank.run(true);

  ASSERT_TRUE(loss) << loss.error().message;
  EXPECT_EQ(*loss, 2.0 / 4) << "the fake's 2 a sample, by 4 tokens";
  EXPECT_EQ(std::count(rank.journal->begin(), rank.journal->end(), "E"), 3) << "5 samples by 2";
  EXPECT_EQ(std::count(rank.journal->begin(), rank.journal->end(), "post bwd"), 0);
  EXPECT_EQ(std::count(rank.journal->begin(), rank.journal->end(), "post fwd header"), 1);
}

TEST(Validation, WaitsForRoomToSendAndPostsNoHeaderAfterTheLastStep) {
  Scripted rank(3);
  rank.peers.on_wait = [&] {
    if (!rank.peers.deliver(kIn) && !rank.peers.sent.empty()) rank.peers.acknowledge(kOut);
  };

  const auto loss = rank.run(false);

  ASSERT_TRUE(loss) << loss.error().message;
  EXPECT_TRUE(std::isnan(*loss)) << "the last stage knows";
  EXPECT_EQ(rank.peers.sent.size(), 3U);
  EXPECT_EQ(std::count(rank.journal->begin(), rank.journal->end(), "post fwd header"), 0);
}

TEST(Validation, EndsWhenItMayNotGoOnOrNobodySends) {
  Scripted silent(2);
  const auto late = silent.run(true);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::kTimeout);

  Scripted stopped(2);
  stopped.goes_on = false;
  const auto cancelled = stopped.run(true);
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code, Code::kCancelled);
}

// A pipeline that validates `samples` samples every `interval` steps.
struct Validated {
  std::vector<Exit> endings;
  Losses validations;
  std::vector<double> losses;
};
Validated train(const std::string& model, int stages, int replicas, Family family, int k,
                std::int64_t steps, Validation validation, Group::On on = Group::On::kHost,
                double grad_clip = 0) {
  Group group(model, stages * replicas, steps, grad_clip, nullptr, nullptr, nullptr, on,
              validation);
  auto plan = test::plan_of(stages, group.layers(), 4, family, k, Dispatch::kStrict);
  if (replicas > 1) {
    plan.micro_batches = {2, 2};
    plan.schedule.caps = schedule::kfkb_caps(stages, 2, k);
  }
  EXPECT_EQ(group.start(plan), "");
  Validated done{.endings = group.finish()};
  const int last = stages * replicas - 1;
  done.validations = group.validations(last);
  done.losses = test::losses_of(group.records(last));
  for (int rank = 0; rank <= last; ++rank) {
    const bool tells = rank % stages == stages - 1;
    EXPECT_EQ(group.validations(rank), tells ? done.validations : Losses()) << "rank " << rank;
    const Statistics statistics = group.engine(rank).statistics();
    EXPECT_EQ(statistics.validation_step, validation.interval > 0 ? steps : -1);
    EXPECT_EQ(std::isfinite(statistics.validation_loss), tells && validation.interval > 0);
  }
  return done;
}

TEST(Validation, TellsTheSameLossForEveryCutAndLeavesTrainingAsItIs) {
  constexpr Validation kThird{.interval = 3, .samples = 7};
  for (const std::string model : {"mlp", "gpt-tiny"}) {
    const auto plain = test::reference_losses(model, 4, 8);
    const auto expected = train(model, 1, 1, Family::kOneFOneB, 1, 8, kThird);
    EXPECT_EQ(expected.losses, plain);
    ASSERT_EQ(expected.validations.size(), 3U);
    EXPECT_EQ(expected.validations[0].first, 3);
    EXPECT_EQ(expected.validations[1].first, 6);
    EXPECT_EQ(expected.validations[2].first, 8) << "the last step";
    EXPECT_NE(expected.validations[2].second, expected.validations[0].second);
    for (const int stages : {2, 3}) {
      for (const int k : {1, 2}) {
        for (const int replicas : {1, 2}) {
          const auto found = train(model, stages, replicas,
                                   k == 1 ? Family::kOneFOneB : Family::kKfkb, k, 8, kThird);
          EXPECT_THAT(found.endings, Each(Exit::kFinished));
          EXPECT_EQ(found.validations, expected.validations)
              << model << ", " << stages << " stages, " << replicas << " replicas, k " << k;
          EXPECT_EQ(found.losses, plain);
        }
      }
    }
  }
}

TEST(Validation, ComesBehindTheNotesOfClippedSteps) {
  constexpr Validation kEach{.interval = 1, .samples = 4};
  const auto expected = train("mlp", 1, 1, Family::kOneFOneB, 1, 5, kEach, Group::On::kHost, 1e-4);
  const auto found = train("mlp", 3, 1, Family::kKfkb, 2, 5, kEach, Group::On::kHost, 1e-4);
  EXPECT_EQ(found.validations, expected.validations);
  EXPECT_EQ(found.losses, test::reference_losses("mlp", 4, 5, 1e-4));
}

TEST(Validation, NeedsNoMemoryOfTheHost) {
  constexpr Validation kSecond{.interval = 2, .samples = 4};
  const auto expected = train("gpt-tiny", 1, 1, Family::kOneFOneB, 1, 4, kSecond);
  const auto found =
      train("gpt-tiny", 2, 1, Family::kOneFOneB, 1, 4, kSecond, Group::On::kStrictDevice);
  EXPECT_EQ(found.validations, expected.validations);
}

// Every step is validated, so that what happens between steps happens there.
class BetweenSteps : public testing::Test {
 protected:
  static constexpr Validation kEach{.interval = 1, .samples = 16};
  static constexpr int kStages = 3;

  void start() { ASSERT_EQ(group_.start(plan_), ""); }

  static constexpr std::int64_t kSteps = 300;  // still under way when the test acts
  Group group_{"mlp", kStages, kSteps, 0, nullptr, nullptr, nullptr, Group::On::kHost, kEach};
  schedule::Plan plan_ =
      test::plan_of(kStages, group_.layers(), 4, Family::kOneFOneB, 1, Dispatch::kStrict);
  const std::vector<double> expected_ = test::reference_losses("mlp", 4, kSteps);
};

TEST_F(BetweenSteps, KIsChangedInBand) {
  start();
  for (const int k : {2, 1, 3, 2}) {
    const std::int64_t now = group_.engine(0).statistics().step;
    ++plan_.revision;
    plan_.trigger = schedule::Trigger::kRetune;
    plan_.schedule.family = Family::kKfkb;
    plan_.schedule.k = k;
    plan_.schedule.caps = schedule::kfkb_caps(kStages, 4, k);
    ASSERT_EQ(group_.switch_to(plan_), "");
    ASSERT_TRUE(group_.reaches(kStages - 1, now + 3));
  }
  EXPECT_THAT(group_.finish(), Each(Exit::kFinished));
  EXPECT_EQ(test::losses_of(group_.records(kStages - 1)), expected_);
  EXPECT_EQ(group_.validations(kStages - 1).size(), expected_.size());
}

TEST_F(BetweenSteps, AnotherGenerationBegins) {
  start();
  for (const std::int64_t at : {100, 200}) {
    ++plan_.revision;
    plan_.state = schedule::StateMove::kKeep;
    ASSERT_EQ(group_.start(plan_, at, static_cast<int>(plan_.revision)), "");
  }
  EXPECT_THAT(group_.finish(), Each(Exit::kFinished));
  EXPECT_EQ(test::losses_of(group_.records(kStages - 1)), expected_);
  EXPECT_GE(group_.validations(kStages - 1).size(), expected_.size() - 2);
}

class LinksBetweenSteps : public BetweenSteps, public testing::WithParamInterface<int> {};

TEST_P(LinksBetweenSteps, Break) {
  start();
  ASSERT_TRUE(group_.reaches(kStages - 1, 3));
  group_.break_links(GetParam());
  ASSERT_TRUE(group_.reports_loss(GetParam() == 0 ? 1 : 0));
  ++plan_.revision;
  plan_.trigger = schedule::Trigger::kRestart;
  plan_.state = schedule::StateMove::kCheckpoint;
  ASSERT_EQ(group_.start(plan_), "");
  EXPECT_THAT(group_.finish(), Each(Exit::kFinished));
  EXPECT_EQ(group_.records(kStages - 1).back().loss, expected_.back());
  EXPECT_EQ(group_.validations(kStages - 1).back().first, kSteps);
}

INSTANTIATE_TEST_SUITE_P(Ranks, LinksBetweenSteps, testing::Range(0, 3));

TEST(Validation, RanksThatLeaveStandAtTheSameStep) {
  for (int round = 0; round < 5; ++round) {
    constexpr int kStages = 3;
    Group group("mlp", kStages, 1'000'000, 0, nullptr, nullptr, nullptr, Group::On::kHost,
                {.interval = 1, .samples = 16});
    ASSERT_EQ(group.start(test::plan_of(kStages, group.layers(), 4, Family::kOneFOneB, 1,
                                        Dispatch::kStrict)),
              "");
    ASSERT_TRUE(group.reaches(0, 3 + round));
    for (int rank = 0; rank < kStages; ++rank) group.engine(rank).leave(test::kPatience);
    EXPECT_THAT(group.finish(), Each(Exit::kTerminated));
    EXPECT_EQ(group.records(0).size(), group.records(1).size());
    EXPECT_EQ(group.records(0).size(), group.records(2).size());
  }
}

// overlaps: averages may go on beside a validation.
TEST(Validation, IsEachReplicasOwnWhereTheyAverageInGroups) {
  constexpr int kReplicas = 3, kStages = 2;
  constexpr std::int64_t kSteps = 40;
  for (const bool overlaps : {false, true}) {
    test::Rounds rounds(kReplicas, kStages, 2, kSteps, {}, overlaps);
    Group group("mlp", kReplicas * kStages, kSteps, 0, nullptr,
                [&](int replica, std::int64_t step) { rounds.on_ready(replica, step); }, nullptr,
                Group::On::kHost, {.interval = 5, .samples = 8});
    rounds.attach(group);
    ASSERT_EQ(group.start(test::averaging(kStages, group.layers(), {3, 3, 3})), "");

    EXPECT_THAT(group.finish(), Each(Exit::kFinished));

    // A slow replica passes over steps, so it may validate seldom.
    Losses most;
    for (int replica = 0; replica < kReplicas; ++replica) {
      Losses found = group.validations(replica * kStages + 1);
      for (const auto& [step, loss] : found) EXPECT_TRUE(std::isfinite(loss)) << "step " << step;
      if (found.size() > most.size()) most = std::move(found);
    }
    ASSERT_GE(most.size(), 3U);
    EXPECT_LT(most.back().second, most.front().second);
  }
}

}  // namespace validation_test
}  // namespace weir::engine
