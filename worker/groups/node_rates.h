// SPDX-License-Identifier: Apache-2.0
// Estimates the bandwidth of each replica's node from the rates that members of averages received
// from each other. A pair is as fast as the slower of its two nodes, in its slower direction. Which
// of the two nodes is slow shows in averages with other members.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weir::groups {

// Rate at which a replica received from another one in an average. Members send at the same time
// and share the receiver's bandwidth, so the rate is scaled up to the bytes received from all
// members.
struct ReceivedRate {
  int from = 0;
  double bytes_per_second = 0;
};

class NodeRates {
 public:
  explicit NodeRates(int replicas);

  // Rounds of later calls only grow.
  void add(int receiver, std::uint64_t round, std::span<const ReceivedRate> average);
  void forget(int replica);  // the replica starts again, perhaps on another node
  // The rate of the replica's fastest pair, back to the last round in which its own node, and not
  // the other one, was the slow one. An average of three shows a slow node at once. An average of
  // two shows it when the other member has been fast with a third. Until then neither counts as
  // slow. 0 = unknown.
  double of(int replica) const;

 private:
  struct Measured {
    double rate = 0;  // 0 = unknown
    std::uint64_t round = 0;
  };
  const Measured& received(int to, int from) const {
    return received_[static_cast<std::size_t>(to * replicas_ + from)];
  }
  Measured& received(int to, int from) {
    return received_[static_cast<std::size_t>(to * replicas_ + from)];
  }
  Measured pair(int one, int other) const;
  bool slows(int replica, int other) const;

  int replicas_;
  std::vector<Measured> received_;  // [to * replicas_ + from]
};

}  // namespace weir::groups
