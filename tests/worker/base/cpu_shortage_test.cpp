// SPDX-License-Identifier: Apache-2.0
#include "worker/base/cpu_shortage.h"

#include <atomic>
#include <sched.h>
#include <thread>

#include <gtest/gtest.h>

#include "worker/base/file_text.h"

namespace weir {
namespace cpu_shortage_test {

using namespace std::chrono_literals;

TEST(CpuShortage, OfAThreadIsTheSecondNumberOfItsSchedstat) {
  EXPECT_DOUBLE_EQ(queued_seconds("123456789 2500000000 42\n"), 2.5);
  EXPECT_EQ(queued_seconds(""), 0);
  EXPECT_EQ(queued_seconds("123"), 0);
  EXPECT_EQ(queued_seconds("123 x 42"), 0);
}

TEST(CpuShortage, OfALimitIsToldByBothVersionsOfCgroups) {
  EXPECT_DOUBLE_EQ(throttled_seconds(
                       "usage_usec 9000000\nnr_periods 80\nnr_throttled 7\nthrottled_usec 1500000\n"
                       "nr_bursts 0\n"),
                   1.5);
  EXPECT_DOUBLE_EQ(throttled_seconds("nr_periods 8\nnr_throttled 3\nthrottled_time 250000000\n"),
                   0.25);
  EXPECT_EQ(throttled_seconds("usage_usec 9000000\n"), 0) << "without a limit";
  EXPECT_EQ(throttled_seconds("core_throttled_usec 5000000\n"), 0);
  EXPECT_EQ(throttled_seconds("throttled_usec"), 0);
}

TEST(CpuShortage, IsMeasuredOfTheThreadThatAsks) {
  if (file_text("/proc/thread-self/schedstat").empty()) GTEST_SKIP() << "no schedstat";
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &all)) ++cpu;
  CPU_SET(cpu, &one);
  double queued = 0;
  std::jthread measured([&] {
    sched_setaffinity(0, sizeof one, &one);
    std::jthread other([&](const std::stop_token& stop) {
      sched_setaffinity(0, sizeof one, &one);
      while (!stop.stop_requested()) {
      }
    });
    const auto all_queued = [] { return queued_seconds(file_text("/proc/thread-self/schedstat")); };
    const double before = all_queued();
    CpuShortageMeter meter;
    const SteadyTime begin = std::chrono::steady_clock::now();
    EXPECT_EQ(meter.take(begin).queued_seconds, 0) << "nothing to compare with";
    while (std::chrono::steady_clock::now() < begin + 300ms) {
    }
    EXPECT_EQ(meter.take(begin + 40ms).queued_seconds, 0) << "too soon";
    queued = meter.take(begin + 300ms).queued_seconds;
    const double later = meter.take(begin + 400ms).queued_seconds;
    EXPECT_LE(queued + later, all_queued() - before + 1e-9) << "only what has come since";
  });
  measured.join();
  EXPECT_GT(queued, 0.03) << "two threads share a processor";
}

}  // namespace cpu_shortage_test
}  // namespace weir
