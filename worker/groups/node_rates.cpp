// SPDX-License-Identifier: Apache-2.0
#include "worker/groups/node_rates.h"

#include <algorithm>
#include <functional>

namespace weir::groups {

NodeRates::NodeRates(int replicas)
    : replicas_(replicas),
      received_(static_cast<std::size_t>(replicas) * static_cast<std::size_t>(replicas)) {}

void NodeRates::add(int receiver, std::uint64_t round, std::span<const ReceivedRate> average) {
  for (const ReceivedRate& one : average) {
    const bool plausible = one.from >= 0 && one.from < replicas_ && one.from != receiver;
    if (!plausible || !(one.bytes_per_second > 0)) continue;
    received(receiver, one.from) = {.rate = one.bytes_per_second, .round = round};
  }
}

void NodeRates::forget(int replica) {
  for (int other = 0; other < replicas_; ++other) {
    received(replica, other) = received(other, replica) = {};
  }
}

NodeRates::Measured NodeRates::pair(int one, int other) const {
  const Measured& in = received(one, other);
  const Measured& out = received(other, one);
  if (in.rate <= 0 || out.rate <= 0) return in.rate <= 0 ? out : in;
  return {.rate = std::min(in.rate, out.rate), .round = std::max(in.round, out.round)};
}

// True if the other replica has been much faster with a third one, in the same round or later.
bool NodeRates::slows(int replica, int other) const {
  constexpr double kMuch = 2;
  const Measured between = pair(replica, other);
  for (int third = 0; third < replicas_; ++third) {
    if (third == replica || third == other) continue;
    const Measured elsewhere = pair(other, third);
    if (elsewhere.round >= between.round && elsewhere.rate > kMuch * between.rate) return true;
  }
  return false;
}

double NodeRates::of(int replica) const {
  std::vector<int> peers;
  for (int other = 0; other < replicas_; ++other) {
    if (pair(replica, other).rate > 0) peers.push_back(other);
  }
  const auto round = [&](int other) { return pair(replica, other).round; };
  std::ranges::sort(peers, std::ranges::greater(), round);
  double best = 0;
  bool slow = false;  // the replica's own node is slow
  std::uint64_t last = 0;
  for (const int other : peers) {
    if (slow && round(other) != last) break;
    last = round(other);
    best = std::max(best, pair(replica, other).rate);
    slow = slow || slows(replica, other);
  }
  return best;
}

}  // namespace weir::groups
