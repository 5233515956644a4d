// SPDX-License-Identifier: Apache-2.0
#include "worker/base/cpus.h"

#include <sched.h>

#include <gtest/gtest.h>

namespace weir {
namespace cpus_test {

TEST(Cpus, AreTheQuotaRoundedUp) {
  EXPECT_EQ(usable_cpus(8, cpu_quota("150000 100000\n")), 2);
  EXPECT_EQ(usable_cpus(8, cpu_quota("200000 100000\n")), 2);
  EXPECT_EQ(usable_cpus(8, cpu_quota("5000 100000\n")), 1);
  EXPECT_EQ(usable_cpus(8, cpu_quota("250000\n", "100000\n")), 3);
}

TEST(Cpus, AreTheMaskWithoutAQuotaOrIfItIsLess) {
  EXPECT_EQ(usable_cpus(8, cpu_quota("max 100000\n")), 8);
  EXPECT_EQ(usable_cpus(8, cpu_quota("-1\n", "100000\n")), 8);
  EXPECT_EQ(usable_cpus(8, cpu_quota("", "")), 8);
  EXPECT_EQ(usable_cpus(2, cpu_quota("1600000 100000\n")), 2);
}

TEST(Cpus, AreOneAtLeast) {
  EXPECT_EQ(usable_cpus(0, std::nullopt), 1);
  for (const char* text : {"", "0 100000", "100000 0", "100000", "a b", "100000 "}) {
    EXPECT_FALSE(cpu_quota(text)) << text;
  }
}

TEST(Cpus, FollowTheAffinityOfThisProcess) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cpus(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace cpus_test
}  // namespace weir
