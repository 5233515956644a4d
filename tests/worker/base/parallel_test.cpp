// SPDX-License-Identifier: Apache-2.0
#include "worker/base/parallel.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace weir {
namespace parallel_test {

TEST(Parallel, VisitsEachIndexOnceWithAnyNumberOfThreads) {
  for (const int threads : {-1, 1, 2, 8, 100}) {
    std::vector<std::atomic<int>> visits(37);
    for_each_index(visits.size(), threads, [&](std::size_t i) { ++visits[i]; });
    for (const auto& count : visits) EXPECT_EQ(count, 1);
  }
}

TEST(Parallel, OneThreadIsThisOneAndKeepsTheOrder) {
  std::vector<std::size_t> order;
  for_each_index(4, 1, [&](std::size_t i) { order.push_back(i); });
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3}));
}

TEST(Parallel, TwoPartsRunAtOnce) {
  std::atomic<int> arrived{0};
  for_each_index(2, 2, [&](std::size_t) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();  // ends only when the other runs
  });
  EXPECT_EQ(arrived, 2);
}

TEST(Parallel, NothingToDoCallsNothing) {
  for_each_index(0, 4, [](std::size_t) { FAIL(); });
}

}  // namespace parallel_test
}  // namespace weir
