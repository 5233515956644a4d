// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/shares/shares.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "worker/base/check.h"

namespace weir::shares {
namespace {

// Seconds of replica p with `share` micro-batches.
double seconds_with(const SharesInput& input, std::size_t p, int share) {
  const int fill = input.stages - 1;
  return input.seconds[p] * (share + fill) / (input.shares[p] + fill);
}

}  // namespace

std::vector<int> even_shares(const std::vector<int>& shares) {
  const int total = std::accumulate(shares.begin(), shares.end(), 0);
  const int replicas = static_cast<int>(shares.size());
  std::vector<int> result(shares.size(), total / replicas);
  for (int p = 0; p < total % replicas; ++p) ++result[static_cast<std::size_t>(p)];
  return result;
}

double slowest_seconds(const SharesInput& input, const std::vector<int>& shares) {
  double slowest = 0;
  for (std::size_t p = 0; p < shares.size(); ++p) {
    slowest = std::max(slowest, seconds_with(input, p, shares[p]));
  }
  return slowest;
}

std::vector<int> balanced_shares(const SharesInput& input) {
  WEIR_CHECK(input.seconds.size() == input.shares.size() && !input.shares.empty(),
             "one time for each share");
  WEIR_CHECK(input.stages >= 1 && input.least_share >= 1, "a replica has a stage and work");
  const int total = std::accumulate(input.shares.begin(), input.shares.end(), 0);
  std::vector<int> shares, most;
  for (std::size_t p = 0; p < input.shares.size(); ++p) {
    const int now = input.shares[p];
    WEIR_CHECK(now >= 1 && input.seconds[p] > 0, "every replica works");
    const int change = input.limit_change ? std::max(1, now / 2) : total;
    shares.push_back(std::min(now, std::max({input.least_share, now - change, 1})));
    most.push_back(now + change);
  }
  int left = total - std::accumulate(shares.begin(), shares.end(), 0);

  // Each micro-batch goes to the replica that ends it first. Times grow with the share, so no other
  // shares have an earlier end of the slowest replica.
  using Entry = std::pair<double, std::size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> next;
  const auto offer = [&](std::size_t p) {
    if (shares[p] < most[p]) next.emplace(seconds_with(input, p, shares[p] + 1), p);
  };
  for (std::size_t p = 0; p < shares.size(); ++p) offer(p);
  for (; left > 0; --left) {
    const std::size_t p = next.top().second;
    next.pop();
    ++shares[p];
    offer(p);
  }
  return shares;
}

}  // namespace weir::shares
