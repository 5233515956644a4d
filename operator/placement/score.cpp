// SPDX-License-Identifier: Apache-2.0
#include "operator/placement/score.h"

#include <algorithm>

#include "worker/base/units.h"

namespace weir::placement {

Send send_between(const Topology& topology, const std::vector<int>& from,
                  const std::vector<int>& to, std::int64_t bytes) {
  const std::size_t r = from.size(), q = to.size();
  const auto parts = static_cast<std::int64_t>(std::min(r, q));
  const std::int64_t part = (bytes + parts - 1) / parts;
  Send slowest;
  for (std::size_t a = 0; a < r; ++a) {
    // Rank a holds samples [a/r, (a+1)/r), rank b of the next stage [b/q, (b+1)/q).
    const std::size_t first = a * q / r, last = ((a + 1) * q + r - 1) / r;
    for (std::size_t b = first; b < last; ++b) {
      const planner::LinkRate& link = topology.link(from[a], to[b]);
      const double seconds = transfer_seconds(link, part);
      if (seconds > slowest.seconds) slowest = {seconds, seconds - to_seconds(link.latency)};
    }
  }
  return slowest;
}

double ring_seconds(const Topology& topology, const Assignment& assignment, std::size_t stage,
                    std::int64_t bytes) {
  std::vector<int> ring;
  for (const auto& replica : assignment) {
    ring.insert(ring.end(), replica[stage].begin(), replica[stage].end());
  }
  const auto n = static_cast<std::int64_t>(ring.size());
  if (n < 2 || bytes <= 0) return 0;
  std::ranges::stable_sort(
      ring, [&](int a, int b) { return topology.server_of(a) < topology.server_of(b); });
  const std::int64_t message = (bytes + n - 1) / n;
  double slowest = 0, latency = 0;
  for (std::size_t i = 0; i < ring.size(); ++i) {
    const planner::LinkRate& hop = topology.link(ring[i], ring[(i + 1) % ring.size()]);
    const double rate = effective_rate(hop, message);
    if (i == 0 || rate < slowest) slowest = rate;
    latency = std::max(latency, to_seconds(hop.latency));
  }
  const auto rounds = static_cast<double>(2 * (n - 1));
  return rounds / static_cast<double>(n) * static_cast<double>(bytes) / slowest + rounds * latency;
}

}  // namespace weir::placement
