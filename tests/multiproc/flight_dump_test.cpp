// SPDX-License-Identifier: Apache-2.0
// Dumps of the flight recorders of real workers, after a loss and a slow step.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multiproc/workers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/trace_check.h"
#include "worker/timeline/chrome_trace.h"
#include "worker/timeline/codec.h"

namespace weir::test {
namespace flight_dump_test {

using testing::IsEmpty;
using timeline::RankRecord;

std::vector<std::string> words(const TempDir& folder) {
  return {"--model=mlp", "--seq=8", "--vocab=32", "--steps=" + std::to_string(kNoEnd),
          "--log-dir=" + folder.path().string()};
}

// The records of the first dump that comes; none: it does not come.
std::vector<RankRecord> dumped(const TempDir& folder) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < until) {
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("flight-") || !name.ends_with(".weir")) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      auto records = timeline::decode(std::string{std::istreambuf_iterator<char>(file), {}});
      EXPECT_TRUE(records) << name << ": " << (records ? "" : records.error().message);
      return records ? *std::move(records) : std::vector<RankRecord>{};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return {};
}

TEST(FlightDump, HoldsTheLastStepsOfTheOthersWhenAWorkerIsKilled) {
  const TempDir folder;
  Workers workers({.stages = 3}, words(folder));
  ASSERT_TRUE(workers.reaches(2, 20)) << workers[0].errors();

  workers[1].signal(SIGKILL);

  const auto records = dumped(folder);
  ASSERT_GE(records.size(), 2U) << workers[0].errors();
  for (const RankRecord& record : records) EXPECT_FALSE(record.events.empty()) << record.stage;
  EXPECT_THAT(check_trace(timeline::chrome_trace(records)).errors, IsEmpty());
  EXPECT_TRUE(workers[0].says("flight recorders")) << workers[0].errors();
}

TEST(FlightDump, IsNotMadeWhereNothingIsRecorded) {
  const TempDir folder;
  auto off = words(folder);
  off.push_back("--flight-events=0");
  Workers workers({.stages = 2}, off);
  ASSERT_TRUE(workers.reaches(1, 20)) << workers[0].errors();

  workers[1].signal(SIGKILL);

  ASSERT_TRUE(workers[0].says("flight recorders")) << workers[0].errors();
  EXPECT_TRUE(workers[0].says("\"bytes\":0")) << workers[0].errors();
}

TEST(FlightDump, HoldsASlowStep) {
  const TempDir folder;
  Workers workers({.stages = 2}, words(folder));
  ASSERT_TRUE(workers.reaches(1, 40)) << workers[0].errors();

  workers[1].signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));  // so long the step takes
  workers[1].signal(SIGCONT);

  const auto records = dumped(folder);
  ASSERT_EQ(records.size(), 2U) << workers[0].errors();
  EXPECT_THAT(check_trace(timeline::chrome_trace(records)).errors, IsEmpty());
  EXPECT_TRUE(workers[0].says("(median ")) << workers[0].errors();
}

}  // namespace flight_dump_test
}  // namespace weir::test
