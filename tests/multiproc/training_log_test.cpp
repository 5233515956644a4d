// SPDX-License-Identifier: Apache-2.0
// The training log of real workers: after kills it tells each step once, with the losses of the
// loss log.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/multiproc/workers.h"

namespace weir::test {
namespace training_log_test {

using nlohmann::json;
using testing::Each;

std::vector<json> lines_in(const std::filesystem::path& folder) {
  std::vector<json> lines;
  std::ifstream file(folder / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    lines.push_back(json::parse(line, nullptr, false));
    EXPECT_TRUE(lines.back().is_object()) << line;
  }
  return lines;
}

std::vector<std::string> words(const std::string& folder, const std::vector<std::string>& more) {
  std::vector<std::string> out{"--model=mlp",
                               "--seq=8",
                               "--vocab=32",
                               "--lr=0.01",
                               "--warmup=4",
                               "--steps=" + std::to_string(kNoEnd),
                               "--log-every=1",
                               "--checkpoint-dir=" + folder,
                               "--checkpoint-interval=4"};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

TEST(TrainingLog, TellsEachStepOnceAfterKills) {
  const TempDir folder;
  std::map<std::int64_t, double> losses;  // by completed steps
  constexpr int kRuns = 3;
  for (int run = 1; run <= kRuns; ++run) {
    Workers workers({.trigger = run == 1 ? "Initial" : "Restart",
                     .state = run == 1 ? "Keep" : "Checkpoint",
                     .revision = run},
                    words(folder.path().string(), {"--validation-interval=3"}));
    ASSERT_TRUE(workers.reaches(1, 6)) << workers[0].errors();
    ASSERT_TRUE(workers[0].says("is complete")) << workers[0].errors();
    if (run == kRuns) {
      EXPECT_THAT(workers.end(), Each(kTerminated)) << workers[0].errors();
    } else {
      for (int i = 0; i < 2; ++i) workers[i].signal(SIGKILL);
      for (int i = 0; i < 2; ++i) ASSERT_TRUE(workers[i].wait());
    }
    for (const LoggedStep& step : workers.steps(1)) {
      losses[step.step + 1] = std::strtod(step.loss_hex.c_str(), nullptr);
    }
  }

  const auto lines = lines_in(folder.path() / "log");
  ASSERT_GT(lines.size(), 6U);
  std::int64_t before = 0;
  int validations = 0;
  for (const json& line : lines) {
    const auto step = line["step"].get<std::int64_t>();
    if (line.contains("validationLoss")) {
      EXPECT_EQ(step % 3, 0);
      EXPECT_GE(step, before);  // the last lines before a kill may not have been written
      EXPECT_GT(line["validationLoss"].get<double>(), 0);
      ++validations;
      continue;
    }
    EXPECT_GT(step, before);
    before = step;
    ASSERT_TRUE(losses.contains(step)) << step;
    EXPECT_NEAR(line["loss"].get<double>(), losses[step], 1e-6) << step;
    EXPECT_DOUBLE_EQ(line["learningRate"].get<double>(),
                     step >= 4 ? 0.01 : 0.0025 * static_cast<double>(step))
        << step;
    EXPECT_GT(line["stepSeconds"].get<double>(), 0);
    EXPECT_EQ(line["tokens"].get<int>(), 5 * 2 * 8);
  }
  EXPECT_GE(validations, 1);
  int events = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "log")) {
    events += entry.path().filename().string().starts_with("events.out.tfevents.") ? 1 : 0;
  }
  EXPECT_EQ(events, kRuns);
}

TEST(TrainingLog, HasTheValidationAfterTheLastStep) {
  const TempDir folder;
  Workers workers({}, {"--model=mlp", "--seq=8", "--vocab=32", "--steps=7", "--log-every=1",
                       "--validation-interval=5", "--log-dir=" + folder.path().string()});

  EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

  std::vector<std::int64_t> validated;
  for (const json& line : lines_in(folder.path())) {
    if (line.contains("validationLoss")) validated.push_back(line["step"].get<std::int64_t>());
  }
  EXPECT_THAT(validated, testing::ElementsAre(5, 7));
}

TEST(TrainingLog, AFolderThatCannotBeMadeStopsNoStep) {
  const TempDir folder;
  const std::string file = folder.file("file", "");
  Workers workers({}, {"--model=mlp", "--seq=8", "--vocab=32", "--steps=20", "--log-every=1",
                       "--log-dir=" + file + "/log"});

  EXPECT_THAT(workers.wait_all(), Each(0)) << workers[0].errors();

  EXPECT_TRUE(workers[0].says("training goes on")) << workers[0].errors();
}

}  // namespace training_log_test
}  // namespace weir::test
