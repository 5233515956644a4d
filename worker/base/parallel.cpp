// SPDX-License-Identifier: Apache-2.0
#include "worker/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace weir {

void for_each_index(std::size_t count, int threads, const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) body(i);
  };
  std::vector<std::jthread> others;
  const std::size_t most = std::min(count, static_cast<std::size_t>(std::max(1, threads)));
  for (std::size_t t = 1; t < most; ++t) others.emplace_back(work);
  work();
}  // joined here

}  // namespace weir
