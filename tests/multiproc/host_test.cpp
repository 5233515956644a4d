// SPDX-License-Identifier: Apache-2.0
// A program that has layers and loads libweir-worker.so (tests/plugin/host.c): it trains as
// weir-worker does with the same layers as a plugin.
#include <csignal>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiproc/workers.h"

namespace weir::test {
namespace host_test {

using testing::Each;
using testing::HasSubstr;

constexpr int kMicroBatches = 5, kConfiguration = 2;
const Host kHost{.program = WEIR_PLUGIN_HOST};

std::vector<std::string> common(int steps) {
  return {"--model-option=width=8",
          "--model-option=blocks=4",
          "--seq=8",
          "--vocab=32",
          "--lr=0.01",
          "--steps=" + std::to_string(steps)};
}

PlanText plan() {
  return {.type = "KFKB",
          .dispatch = "Hint",
          .k = 2,
          .stages = 2,
          .micro_batches = kMicroBatches,
          .layers = 6};
}

std::vector<std::string> losses_of_the_plugin(int steps) {
  auto words = common(steps);
  words.push_back("--plugin=" WEIR_PLUGIN);
  return losses_alone(words, kMicroBatches);
}

TEST(HostProgram, TrainsAsThePluginDoes) {
  const auto expected = losses_of_the_plugin(4);
  ASSERT_EQ(expected.size(), 4U);
  Workers workers(plan(), common(4), {}, 0, {kHost, kHost});

  EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

  EXPECT_EQ(losses(workers.steps(1)), expected);
}

TEST(HostProgram, TrainsBesideAWorkerWithThePlugin) {
  Workers workers(plan(), common(4), {{}, {"--plugin=" WEIR_PLUGIN}}, 0, {kHost, Host{}});

  EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

  EXPECT_EQ(losses(workers.steps(1)), losses_of_the_plugin(4));
}

TEST(HostProgram, LeavesAtSigtermAndLetsItsChildrenEnd) {
  Workers workers(plan(), common(kNoEnd), {{"--fork"}, {}}, 0, {kHost, kHost});
  ASSERT_TRUE(workers.reaches(0, 3)) << workers[0].errors();

  EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();

  EXPECT_THAT(workers[0].errors(), HasSubstr("child ended by signal 15"));
}

TEST(HostProgram, RunsTheWorkerOnce) {
  const TempDir folder;
  auto words = common(1);
  words.push_back("--twice");
  Process process(words, folder.path().string() + "/errors", kHost);

  EXPECT_EQ(process.wait(), kConfiguration) << process.errors();

  EXPECT_THAT(process.errors(), HasSubstr("host: weir_worker_main was called twice"));
}

}  // namespace host_test
}  // namespace weir::test
