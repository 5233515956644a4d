// SPDX-License-Identifier: Apache-2.0
#include "worker/eventlog/training_log.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace weir::eventlog {
namespace training_log_test {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

Entry entry_at(std::int64_t step, milliseconds time) {
  Entry entry;
  entry.step = step;
  entry.time = SystemTime(std::chrono::hours(10000) + time);
  entry.loss = 1;
  return entry;
}

std::vector<std::int64_t> steps_in(const std::filesystem::path& folder) {
  std::vector<std::int64_t> steps;
  std::ifstream file(folder / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) steps.push_back(step_of(line).value_or(-1));
  return steps;
}

int event_files_in(const std::filesystem::path& folder) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    count += entry.path().filename().string().starts_with("events.out.tfevents.") ? 1 : 0;
  }
  return count;
}

// A log that has taken these steps and ended.
void run(const std::filesystem::path& folder, const std::vector<std::int64_t>& steps,
         int every = 1) {
  std::atomic<std::int64_t> dropped{-1};
  {
    TrainingLog log({.folder = folder.string(), .pod = "p", .every = every}, dropped);
    for (const auto step : steps) log.put(entry_at(step, milliseconds(10 * step)));
  }
  EXPECT_EQ(dropped, 0);
}

TEST(Choice, TakesTenStepsASecondOrEachNth) {
  Choice by_time(0), by_number(5);
  int timed = 0, numbered = 0;
  for (int step = 1; step <= 100; ++step) {
    const Entry entry = entry_at(step, milliseconds(10 * step));
    timed += by_time.wants(entry) ? 1 : 0;
    numbered += by_number.wants(entry) ? 1 : 0;
  }
  EXPECT_EQ(timed, 10);
  EXPECT_EQ(numbered, 20);
}

TEST(TrainingLog, WritesEachStepOnceAfterARestart) {
  const test::TempDir folder;
  const auto log = folder.path() / "new" / "log";
  run(log, {1, 2, 3, 4, 5, 6});
  run(log, {4, 5, 6, 7});  // from a checkpoint of step 3

  EXPECT_THAT(steps_in(log), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(event_files_in(log), 2);
}

TEST(TrainingLog, GoesBackInOneProcess) {
  const test::TempDir folder;
  run(folder.path(), {1, 2, 3, 4, 5, 3, 4});

  EXPECT_THAT(steps_in(folder.path()), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(event_files_in(folder.path()), 2);
}

TEST(TrainingLog, CutsWhatIsTrainedAgainEvenIfItsFirstStepIsNotWritten) {
  const test::TempDir folder;
  run(folder.path(), {1, 2, 3, 4, 5, 6, 7, 8});
  run(folder.path(), {4, 5, 6}, 6);

  EXPECT_THAT(steps_in(folder.path()), ElementsAre(1, 2, 3, 6));
}

TEST(TrainingLog, TellsTheLastStepAlways) {
  const test::TempDir folder;
  run(folder.path(), {1, 2, 3, 4, 5, 6, 7}, 3);

  EXPECT_THAT(steps_in(folder.path()), ElementsAre(3, 6, 7));
}

TEST(TrainingLog, WritesAValidationBesideItsStepAndCutsItWithIt) {
  const test::TempDir folder;
  std::atomic<std::int64_t> dropped{-1};
  const auto validation_at = [](std::int64_t step) {
    Entry entry = entry_at(step, milliseconds(step));
    entry.validation_loss = 2;
    return entry;
  };
  {
    TrainingLog log({.folder = folder.path().string(), .pod = "p", .every = 1}, dropped);
    log.put(validation_at(0));  // before any step: nothing is known to be cut
    for (const int step : {1, 2}) log.put(entry_at(step, milliseconds(step)));
    log.put(validation_at(2));
    for (const int step : {3, 4}) log.put(entry_at(step, milliseconds(step)));
    log.put(validation_at(4));
    log.put(entry_at(3, milliseconds(5)));  // back to the checkpoint of step 2
    EXPECT_TRUE(log.finish(std::chrono::seconds(30)));
  }
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(1, 2, 2, 3));
  EXPECT_EQ(dropped, 0);
}

TEST(TrainingLog, CountsWhatADiskDoesNotTake) {
  const test::TempDir folder;
  const std::string file = folder.file("file", "");
  std::atomic<std::int64_t> dropped{-1};
  {
    TrainingLog log({.folder = file + "/log", .pod = "p", .every = 1}, dropped);
    for (int step = 1; step <= 3; ++step) log.put(entry_at(step, milliseconds(step)));
  }
  EXPECT_EQ(dropped, 3);
}

}  // namespace training_log_test
}  // namespace weir::eventlog
