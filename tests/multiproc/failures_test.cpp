// SPDX-License-Identifier: Apache-2.0
// Killed, stopped, terminated workers: the others say so, nothing hangs, exit codes as documented.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiproc/workers.h"

namespace weir::test {
namespace failures_test {

using testing::Each;

constexpr int kPeerLost = 80;

std::vector<std::string> long_run(const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {"--model=mlp", "--seq=8", "--vocab=32",
                                    "--steps=" + std::to_string(kNoEnd)};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(KilledWorker, EndsTheOthersWithPeerLostWhenNobodyTakesItsPlace) {
  Workers workers({.stages = 3}, long_run({"--rejoin-timeout=2"}));
  ASSERT_TRUE(workers.reaches(2, 3)) << workers[0].errors();

  workers[1].signal(SIGKILL);

  EXPECT_EQ(workers[0].wait(), kPeerLost) << workers[0].errors();
  EXPECT_EQ(workers[2].wait(), kPeerLost) << workers[2].errors();
  EXPECT_NE(workers[0].errors().find("step dropped"), std::string::npos);
  EXPECT_NE(workers[2].errors().find("step dropped"), std::string::npos);
  EXPECT_EQ(workers[1].wait(), 128 + SIGKILL);
}

TEST(KilledWorker, IsReplacedByAFreshOneWithANewPlanAndTrainingStartsAgain) {
  Workers workers({.stages = 2, .micro_batches = 5}, long_run());
  ASSERT_TRUE(workers.reaches(0, 3)) << workers[0].errors();

  workers[1].signal(SIGKILL);
  ASSERT_EQ(workers[1].wait(), 128 + SIGKILL);
  workers.restart(1);
  workers.write_plan({.trigger = "Restart",
                      .state = "Checkpoint",
                      .revision = 2,
                      .stages = 2,
                      .micro_batches = 5});

  ASSERT_TRUE(workers.reaches(1, 20)) << workers[0].errors() << workers[1].errors();
  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors() << workers[1].errors();
  EXPECT_NE(workers[0].errors().find("training starts again at step 0"), std::string::npos);
  const auto done = losses(workers.steps(1));
  EXPECT_EQ(done, losses_alone(long_run(), 5, done.size()));
}

TEST(StoppedWorker, CountsAsLostAfterTheSilence) {
  Workers workers({.stages = 2}, long_run({"--dead-after=2", "--rejoin-timeout=1"}));
  ASSERT_TRUE(workers.reaches(1, 3)) << workers[0].errors();

  workers[1].signal(SIGSTOP);

  EXPECT_EQ(workers[0].wait(), kPeerLost) << workers[0].errors();
}

TEST(Sigterm, EndsAllWorkersOfAPipeline) {
  Workers workers({.stages = 3}, long_run());
  ASSERT_TRUE(workers.reaches(2, 3)) << workers[0].errors();

  EXPECT_THAT(workers.end(), Each(kTerminated));
  // The running step was finished by all of them.
  EXPECT_EQ(workers.steps(0).size(), workers.steps(1).size());
  EXPECT_EQ(workers.steps(0).size(), workers.steps(2).size());
}

TEST(Sigterm, OfOneWorkerIsSeenByTheOthers) {
  Workers workers({.stages = 2}, long_run({"--rejoin-timeout=1"}));
  ASSERT_TRUE(workers.reaches(1, 3)) << workers[0].errors();

  workers[1].signal(SIGTERM);

  EXPECT_EQ(workers[1].wait(), kTerminated) << workers[1].errors();
  EXPECT_EQ(workers[0].wait(), kPeerLost) << workers[0].errors();
}

TEST(Sigterm, EndsAWorkerThatWaitsForAPlan) {
  const TempDir folder;
  const std::string plan = folder.file("plan.json", PlanText{.stages = 2}.json());
  Process worker({"--model=mlp", "--plan=" + plan, "--workers=2", "--control-port=0",
                  "--data-port=0", "--metrics-port=0"},
                 (folder.path() / "errors.log").string());
  ASSERT_TRUE(worker.logged("control_port"));

  worker.signal(SIGTERM);

  EXPECT_EQ(worker.wait(), kTerminated) << worker.errors();
}

TEST(IdleWorker, EndsWellWhenTheOthersHaveFinished) {
  const std::vector<std::string> common = {"--model=mlp", "--seq=8", "--vocab=32", "--steps=20"};
  for (const int first : {0, 1}) {  // with 1 the coordinator itself is idle
    Workers workers({.stages = 2, .micro_batches = 5, .first_worker = first}, common, {}, 3);

    EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors() << workers[2].errors();

    EXPECT_EQ(workers.steps(first + 1).size(), 20U);
    EXPECT_TRUE(workers.steps(first == 0 ? 2 : 0).empty());
  }
}

TEST(Startup, EndsWhenTheOtherWorkersDoNotCome) {
  const TempDir folder;
  const std::string plan = folder.file("plan.json", PlanText{.stages = 2}.json());
  Process worker({"--model=mlp", "--plan=" + plan, "--workers=2", "--control-port=0",
                  "--data-port=0", "--metrics-port=0", "--startup-timeout=1"},
                 (folder.path() / "errors.log").string());

  EXPECT_EQ(worker.wait(), 1) << worker.errors();
  EXPECT_NE(worker.errors().find("no plan came"), std::string::npos);
}

}  // namespace failures_test
}  // namespace weir::test
