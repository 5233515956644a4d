// SPDX-License-Identifier: Apache-2.0
#include "worker/eventlog/json_lines.h"

#include <csignal>
#include <fstream>
#include <iterator>
#include <limits>
#include <sys/resource.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "worker/base/time_text.h"

namespace weir::eventlog {
namespace json_lines_test {

using ::testing::ElementsAre;

Entry entry_at(std::int64_t step) {
  Entry entry;
  entry.step = step;
  entry.time = *parse_rfc3339("2026-01-02T03:04:05.5Z");
  entry.loss = 2.5;
  entry.learning_rate = 3e-4;
  entry.seconds = 0.5;
  entry.samples = 32;
  entry.tokens = 1024;
  entry.k = 2;
  entry.revision = 7;
  return entry;
}

std::string text_of(const test::TempDir& folder, const char* name = "metrics.jsonl") {
  std::ifstream file(folder.path() / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::int64_t> steps_of(const test::TempDir& folder) {
  std::vector<std::int64_t> steps;
  std::ifstream file(folder.path() / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) steps.push_back(step_of(line).value_or(-1));
  return steps;
}

TEST(JsonLines, WritesAStepAsOneObject) {
  EXPECT_EQ(json_line(entry_at(12)),
            R"({"step":12,"time":"2026-01-02T03:04:05.500000Z","loss":2.5,"learningRate":0.0003,)"
            R"("stepSeconds":0.5,"samplesPerSecond":64,"tokens":1024,"k":2,"revision":7})"
            "\n");
  Entry skipped = entry_at(13);
  skipped.loss = std::numeric_limits<double>::infinity();
  EXPECT_NE(json_line(skipped).find("\"loss\":null"), std::string::npos);
  Entry validation = entry_at(14);
  validation.validation_loss = 2.25;
  EXPECT_EQ(json_line(validation),
            "{\"step\":14,\"time\":\"2026-01-02T03:04:05.500000Z\",\"validationLoss\":2.25}\n");
  EXPECT_EQ(step_of("{\"step\":14,\"validationLoss\":2.25}"), 14);
}

TEST(JsonLines, ReadsTheStepOfItsOwnLinesOnly) {
  EXPECT_EQ(step_of(R"({"step":12,"x":1})"), 12);
  for (const char* other : {"", "{", R"({"step":})", R"({"step":-1})", R"({"step":1)",
                            R"({"step":1x})", R"({"loss":1,"step":2})", R"(step 12)"}) {
    EXPECT_FALSE(step_of(other)) << other;
  }
}

TEST(JsonLines, CutsStepsThatAreTrainedAgain) {
  const test::TempDir folder;
  const auto lines = JsonLines::open(folder.path().string());
  ASSERT_TRUE(lines.ok()) << lines.error().message;
  for (std::int64_t step = 1; step <= 400; ++step) ASSERT_TRUE((*lines)->append(entry_at(step)));

  ASSERT_TRUE((*lines)->cut_behind(400).ok());
  EXPECT_EQ(steps_of(folder).size(), 400U);
  ASSERT_TRUE((*lines)->cut_behind(3).ok());
  ASSERT_TRUE((*lines)->append(entry_at(4)));
  EXPECT_THAT(steps_of(folder), ElementsAre(1, 2, 3, 4));
  ASSERT_TRUE((*lines)->cut_behind(0).ok());
  EXPECT_EQ(text_of(folder), "");
}

TEST(JsonLines, CutsATornLineOfAKilledProcess) {
  const std::string whole = json_line(entry_at(1)) + json_line(entry_at(2));
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    const test::TempDir folder;
    folder.file("metrics.jsonl", whole.substr(0, size));

    const auto lines = JsonLines::open(folder.path().string());

    ASSERT_TRUE(lines.ok()) << size << ": " << lines.error().message;
    ASSERT_TRUE((*lines)->cut_behind(2).ok());
    ASSERT_TRUE((*lines)->append(entry_at(3)).ok());
    auto steps = steps_of(folder);
    ASSERT_FALSE(steps.empty());
    EXPECT_EQ(steps.back(), 3);
    for (const auto step : steps) EXPECT_GT(step, 0) << size;
  }
}

TEST(JsonLines, LeavesAFileOfSomethingElse) {
  const test::TempDir folder;
  folder.file("metrics.jsonl", "{\"epoch\": 1}\n");
  folder.file("metrics-1.jsonl", std::string(5000, 'x'));

  const auto lines = JsonLines::open(folder.path().string());
  ASSERT_TRUE(lines.ok()) << lines.error().message;
  ASSERT_TRUE((*lines)->append(entry_at(1)).ok());

  EXPECT_EQ(text_of(folder), "{\"epoch\": 1}\n");
  EXPECT_EQ(text_of(folder, "metrics-2.jsonl"), json_line(entry_at(1)));
}

TEST(JsonLines, AFullDiskLeavesTheFileAsItWas) {
  const test::TempDir folder;
  const auto lines = JsonLines::open(folder.path().string());
  ASSERT_TRUE(lines.ok());
  ASSERT_TRUE((*lines)->append(entry_at(1)).ok());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{json_line(entry_at(1)).size() + 20, before.rlim_max};  // in the second line
  setrlimit(RLIMIT_FSIZE, &full);

  const Status written = (*lines)->append(entry_at(2));

  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(written.ok());
  EXPECT_THAT(steps_of(folder), ElementsAre(1));
  ASSERT_TRUE((*lines)->append(entry_at(3)).ok());
  EXPECT_THAT(steps_of(folder), ElementsAre(1, 3));
}

}  // namespace json_lines_test
}  // namespace weir::eventlog
