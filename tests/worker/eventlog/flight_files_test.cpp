// SPDX-License-Identifier: Apache-2.0
#include "worker/eventlog/flight_files.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace weir::eventlog {
namespace flight_files_test {

using testing::SizeIs;

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

TEST(FlightFiles, WritesADumpAsOneFileOnItsThread) {
  const test::TempDir folder;
  const std::string log = (folder.path() / "log").string();
  FlightFiles files(log);

  ASSERT_TRUE(files.put(812, std::string("\0octets", 7)));
  ASSERT_TRUE(files.finish(std::chrono::seconds(30)));

  std::ifstream file(log + "/flight-812.weir", std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), std::string("\0octets", 7));
  EXPECT_THAT(names_in(log), SizeIs(1));
}

TEST(FlightFiles, TheNewestStayAndForeignFilesToo) {
  const test::TempDir folder;
  const std::string where = folder.path().string();
  folder.file("metrics.jsonl", "{}");
  const auto start = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  for (int i = 0; i < 11; ++i) {
    ASSERT_TRUE(write_flight_file(where, 2000 - i, "octets"));
    std::filesystem::last_write_time(folder.path() / flight_file(2000 - i),
                                     start + std::chrono::seconds(i));
  }
  ASSERT_TRUE(write_flight_file(where, 5, "octets"));

  const auto names = names_in(folder.path());

  EXPECT_THAT(names, SizeIs(kFlightFiles + 1));
  EXPECT_TRUE(names.contains("metrics.jsonl"));
  EXPECT_TRUE(names.contains(flight_file(5)));
  EXPECT_TRUE(names.contains(flight_file(1990)));
  EXPECT_FALSE(names.contains(flight_file(2000)));
}

TEST(FlightFiles, SaysWhyThereIsNone) {
  const test::TempDir folder;
  const std::string file = folder.file("log", "no folder");

  const Status written = write_flight_file(file, 5, "octets");

  ASSERT_FALSE(written.ok());
  EXPECT_THAT(written.error().message, testing::HasSubstr(file));
}

}  // namespace flight_files_test
}  // namespace weir::eventlog
