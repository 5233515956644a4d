// SPDX-License-Identifier: Apache-2.0
#include "worker/device/system_memory.h"

#include <gtest/gtest.h>

namespace weir::device {
namespace system_memory_test {

constexpr auto kMeminfo =
    "MemTotal:       24683452 kB\n"
    "MemFree:        21587200 kB\n"
    "MemAvailable:   24233196 kB\n"
    "Broken:\n";

TEST(SystemMemory, ReadsAFieldOfMeminfoInBytes) {
  EXPECT_EQ(meminfo_bytes(kMeminfo, "MemTotal"), std::int64_t{24683452} * 1024);
  EXPECT_EQ(meminfo_bytes(kMeminfo, "MemAvailable"), std::int64_t{24233196} * 1024);
}

TEST(SystemMemory, TakesNoOtherFieldForAMissingOne) {
  EXPECT_FALSE(meminfo_bytes(kMeminfo, "Mem"));
  EXPECT_FALSE(meminfo_bytes(kMeminfo, "Broken"));
  EXPECT_FALSE(meminfo_bytes("", "MemTotal"));
}

TEST(SystemMemory, ReadsALimitOfEitherCgroupVersion) {
  EXPECT_EQ(cgroup_bytes("1073741824\n"), 1073741824);
  EXPECT_FALSE(cgroup_bytes("max\n"));
  EXPECT_FALSE(cgroup_bytes("9223372036854771712\n"));
  EXPECT_FALSE(cgroup_bytes(""));
}

TEST(SystemMemory, ReadsAFieldOfMemoryStat) {
  constexpr auto kStat = "anon 100\ninactive_file 4096\ninactive_file_x 7\nbroken\n";
  EXPECT_EQ(stat_bytes(kStat, "inactive_file"), 4096);
  EXPECT_FALSE(stat_bytes(kStat, "inactive"));
  EXPECT_FALSE(stat_bytes(kStat, "broken"));
}

}  // namespace system_memory_test
}  // namespace weir::device
