// SPDX-License-Identifier: Apache-2.0
// Data parallel pipelines of real processes: the loss is, bit for bit, that of one process with the
// whole batch, for any number of replicas and any shares, while these change and while replicas
// come and go; a replica that dies in the middle of a sum stops nobody for good.
#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiproc/workers.h"

namespace weir::test {
namespace replicas_test {

using testing::Each;

// The whole matrix and all trials; set by the full run.
bool full() {
  return std::getenv("WEIR_FAULT_SEEDS") != nullptr;
}

std::vector<std::string> small(const std::string& model, int steps) {
  return {"--model=" + model, "--seq=8", "--vocab=32", "--lr=0.01",
          "--steps=" + std::to_string(steps)};
}

std::vector<int> shares_of(int replicas, int total, bool equal) {
  std::vector<int> shares(static_cast<std::size_t>(replicas), total / replicas);
  if (!equal) {  // 2, 2, ..., the rest
    shares.assign(static_cast<std::size_t>(replicas), 2);
    shares.back() = total - 2 * (replicas - 1);
  }
  return shares;
}

struct Matrix {
  std::string model;
  int replicas, stages;
};
class SameLossReplicated : public testing::TestWithParam<Matrix> {};

TEST_P(SameLossReplicated, AsOneProcessWithEveryScheduleAndAnyShares) {
  constexpr int kMicroBatches = 12;
  const auto& [model, replicas, stages] = GetParam();
  const auto common = small(model, 3);
  const auto expected = losses_alone(common, kMicroBatches);
  ASSERT_EQ(expected.size(), 3U);
  std::vector<PlanText> plans = {{.type = "OneFOneB"},
                                 {.type = "KFKB", .dispatch = "Hint", .k = 2}};
  if (full()) {
    plans.push_back({.type = "GPipe"});
    plans.push_back({.type = "KFKB", .dispatch = "Strict", .k = 2});
  }
  bool equal = true;
  for (PlanText plan : plans) {
    for (int round = 0; round < (full() ? 2 : 1); ++round) {
      plan.stages = stages;
      plan.shares = shares_of(replicas, kMicroBatches, equal);
      equal = !equal;
      Workers workers(plan, common);

      EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

      for (int r = 0; r < replicas; ++r) {
        EXPECT_EQ(losses(workers.steps((r + 1) * stages - 1)), expected)
            << plan.type << " replica " << r << " of " << replicas;
      }
    }
  }
}

std::vector<Matrix> matrix() {
  std::vector<Matrix> all = {{"mlp", 2, 2}, {"gpt-tiny", 2, 2}, {"mlp", 4, 2}};
  if (full()) {
    all.insert(all.end(), {{"mlp", 2, 4}, {"mlp", 4, 4}, {"gpt-tiny", 4, 2}, {"gpt-tiny", 4, 4}});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, SameLossReplicated, testing::ValuesIn(matrix()),
                         [](const auto& instance) {
                           const Matrix& m = instance.param;
                           return std::string(m.model == "mlp" ? "Mlp" : "Gpt") +
                                  std::to_string(m.replicas) + "x" + std::to_string(m.stages);
                         });

TEST(Replicas, SumTheSameBitsWhoeverPacks) {
  const auto common = small("mlp", kNoEnd);
  PlanText plan;
  plan.stages = 1;
  plan.shares = {2, 2};
  Workers workers(plan, common, {{"--sum-encoding=packed"}, {"--sum-encoding=raw"}});
  ASSERT_TRUE(workers.reaches(0, 3)) << workers[0].errors();
  std::string page;
  for (int tries = 0; tries < 1000 && !metric(page, {"weir_sync_bytes_total", "packed"}); ++tries) {
    page = scrape(workers[0].logged("metrics_port").value_or(0));
  }
  EXPECT_GT(metric(page, {"weir_sync_bytes_total", "packed"}).value_or(0), 0) << page;

  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();
  const auto first = losses(workers.steps(0));
  EXPECT_EQ(losses(workers.steps(1)), first);
  EXPECT_EQ(losses_alone(common, 4, first.size()), first);
}

TEST(Replicas, ChangeTheirSharesAndScheduleWithoutLosingAStepOrABit) {
  constexpr int kMicroBatches = 8;
  const auto common = small("mlp", kNoEnd);
  PlanText plan{.stages = 2, .shares = {4, 4}};
  Workers workers(plan, common);
  ASSERT_TRUE(workers.reaches(0, 2)) << workers[0].errors();
  for (const auto& [shares, k] : std::vector<std::pair<std::vector<int>, int>>{
           {{2, 6}, 1}, {{5, 3}, 2}, {{5, 3}, 1}, {{6, 2}, 2}}) {
    plan = {.type = "KFKB",
            .dispatch = "Hint",
            .trigger = "Retune",
            .revision = plan.revision + 1,
            .k = k,
            .stages = 2,
            .shares = shares};
    if (k == 1) plan.dispatch = "Strict";
    workers.write_plan(plan);
    ASSERT_TRUE(workers.adopts(0, static_cast<std::uint32_t>(plan.revision)))
        << workers[0].errors();
  }

  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();

  const auto first = workers.steps(0);
  EXPECT_EQ(first.back().epoch, 5U);
  for (int worker = 1; worker < 4; ++worker) {
    const auto steps = workers.steps(worker);
    ASSERT_EQ(steps.size(), first.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      ASSERT_EQ(steps[i].epoch, first[i].epoch) << "worker " << worker << " step " << i;
    }
  }
  EXPECT_EQ(losses(workers.steps(1)), losses_alone(common, kMicroBatches, first.size()));
}

// From one replica to two and back, through checkpoints.
TEST(Replicas, ComeAndGoWithPlansWithoutABitOfDifference) {
  constexpr int kMicroBatches = 6;
  const TempDir folder;
  const auto plain = small("mlp", kNoEnd);
  auto common = plain;
  common.insert(common.end(), {"--checkpoint-dir=" + (folder.path() / "saved").string(),
                               "--checkpoint-interval=20"});
  PlanText plan{.stages = 2, .micro_batches = kMicroBatches, .first_worker = 0};
  Workers workers(plan, common, {}, 4);
  ASSERT_TRUE(workers[0].says("checkpoint of step")) << workers[0].errors();
  plan = {.trigger = "Resize",
          .state = "Checkpoint",
          .revision = 2,
          .stages = 2,
          .first_worker = 0,
          .shares = {4, 2}};
  workers.write_plan(plan);
  ASSERT_TRUE(workers.adopts(3, 2)) << workers[0].errors();
  ASSERT_TRUE(workers.reaches(3, 50)) << workers[0].errors();
  plan = {.trigger = "Resize",
          .state = "Checkpoint",
          .revision = 3,
          .stages = 2,
          .micro_batches = kMicroBatches,
          .first_worker = 0};
  workers.write_plan(plan);
  ASSERT_TRUE(workers.adopts(0, 3)) << workers[0].errors();

  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();

  const auto steps = workers.steps(1);
  const auto last = std::ranges::max(steps, {}, &LoggedStep::step).step;
  const auto expected = losses_alone(plain, kMicroBatches, static_cast<std::size_t>(last) + 1);
  ASSERT_FALSE(expected.empty());
  std::set<std::uint32_t> epochs;
  for (const LoggedStep& step : steps) {
    EXPECT_EQ(step.loss_hex, expected[static_cast<std::size_t>(step.step)]) << step.step;
    epochs.insert(step.epoch);
  }
  EXPECT_EQ(epochs, (std::set<std::uint32_t>{1, 2, 3}));
}

// A moment at random: mostly within a sum, as these take most of such small steps.
TEST(Replicas, GoOnAfterAnyRankIsKilledAtAnyMoment) {
  const TempDir folder;
  auto common = small("mlp", kNoEnd);
  common.insert(common.end(), {"--checkpoint-dir=" + (folder.path() / "saved").string(),
                               "--checkpoint-interval=50", "--rejoin-timeout=60"});
  PlanText plan{.stages = 2, .shares = {2, 3}};
  Workers workers(plan, common);
  std::mt19937 random(1);  // NOLINT: the same moments in every run
  for (int trial = 0; trial < (full() ? 100 : 4); ++trial) {
    ASSERT_TRUE(workers.adopts(0, static_cast<std::uint32_t>(plan.revision)))
        << "trial " << trial << ": " << workers[0].errors();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    const int victim = 1 + static_cast<int>(random() % 3);
    workers[victim].signal(SIGKILL);
    ASSERT_EQ(workers[victim].wait(), 128 + SIGKILL);
    plan.trigger = "Restart";
    plan.state = "Checkpoint";
    ++plan.revision;
    workers.write_plan(plan);
    workers.restart(victim);
  }
  ASSERT_TRUE(workers.adopts(0, static_cast<std::uint32_t>(plan.revision))) << workers[0].errors();
  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();
}

// Losses of a last stage, no step twice and all in order, as the whole batch gives them. It misses
// those that the other replica has done without it.
void expect_no_step_lost(const std::vector<LoggedStep>& log,
                         const std::vector<std::string>& expected, const std::string& which) {
  std::int64_t next = 0;
  for (const LoggedStep& step : log) {
    EXPECT_GE(step.step, std::exchange(next, step.step + 1)) << which;
    EXPECT_EQ(step.loss_hex, expected.at(static_cast<std::size_t>(step.step)))
        << which << " step " << step.step;
  }
}

// Without a checkpoint: the new process takes the state of its peer, and the others keep theirs,
// also if the coordinator is the one that is killed.
TEST(Recovery, OfAnyRankAtAnyMomentLosesNoStepIfAPeerLives) {
  const auto common = small("mlp", kNoEnd);
  PlanText plan{.stages = 2, .shares = {2, 3}};
  Workers workers(plan, common);
  std::vector<std::pair<std::string, std::vector<LoggedStep>>> logs;
  std::mt19937 random(2);  // NOLINT: the same moments in every run
  for (int trial = 0; trial < (full() ? 100 : 8); ++trial) {
    const std::string which = "trial " + std::to_string(trial);
    ASSERT_TRUE(workers.adopts(3, static_cast<std::uint32_t>(plan.revision)))
        << which << ": " << workers[0].errors() << workers[3].errors();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    const int victim = trial % 4;
    workers[victim].signal(SIGKILL);
    ASSERT_EQ(workers[victim].wait(), 128 + SIGKILL);
    if (victim % 2 == 1) logs.emplace_back(which, workers.steps(victim));
    plan.trigger = "Restart";
    plan.state = "Recover";
    ++plan.revision;
    workers.write_plan(plan);
    workers.restart(victim);
  }
  ASSERT_TRUE(workers.adopts(3, static_cast<std::uint32_t>(plan.revision))) << workers[0].errors();
  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();

  for (const int worker : {1, 3}) logs.emplace_back("the end", workers.steps(worker));
  std::int64_t steps = 0;
  for (const auto& [which, log] : logs) {
    if (!log.empty()) steps = std::max(steps, log.back().step + 1);
  }
  const auto expected = losses_alone(common, 5, static_cast<std::size_t>(steps));
  ASSERT_EQ(expected.size(), static_cast<std::size_t>(steps));
  std::set<std::int64_t> done;
  for (const auto& [which, log] : logs) {
    expect_no_step_lost(log, expected, which);
    for (const LoggedStep& step : log) done.insert(step.step);
  }
  EXPECT_EQ(static_cast<std::int64_t>(done.size()), steps) << "a step is missing";
}

TEST(Replicas, SaveEachLayerOnceAndGoOnFromThere) {
  const TempDir folder;
  const auto plain = small("mlp", 40);
  auto common = plain;
  common.insert(common.end(), {"--checkpoint-dir=" + (folder.path() / "saved").string(),
                               "--checkpoint-interval=15"});
  {
    Workers workers({.stages = 2, .shares = {3, 3}}, common);
    EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();
    EXPECT_EQ(losses(workers.steps(3)), losses_alone(plain, 6));
  }
  // One replica reads what two have written.
  auto longer = small("mlp", 50);
  const auto expected = losses_alone(longer, 6);
  longer.insert(longer.end(), {"--checkpoint-dir=" + (folder.path() / "saved").string()});
  Workers workers({.stages = 2, .micro_batches = 6}, longer);
  EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();
  const auto steps = workers.steps(1);
  ASSERT_EQ(steps.size(), 10U);
  for (const LoggedStep& step : steps) {
    EXPECT_EQ(step.loss_hex, expected[static_cast<std::size_t>(step.step)]);
  }
}

}  // namespace replicas_test
}  // namespace weir::test
