// SPDX-License-Identifier: Apache-2.0
// How fast the port of each replica is, from what the members of averages received from each other.
// Ports are slow, not pairs: a pair is as fast as the slower of its two ports, in its slower
// direction. Which of the two it is shows where they averaged with others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weir::groups {

// What a replica received from another one in an average: bytes a second, as if all that came at
// the same time from the other members had come at that rate too.
struct ReceivedRate {
  int from = 0;
  double bytes_per_second = 0;
};

class PortRates {
 public:
  explicit PortRates(int replicas);

  // Rounds only grow.
  void add(int receiver, std::uint64_t round, std::span<const ReceivedRate> average);
  void forget(int replica);  // it begins again, maybe elsewhere
  // Of its pairs the fastest one, back to the last round in which it, and not the other one, was
  // slow: a slow port is known at once after an average of three, after a pair when the other one
  // has been fast with somebody else. Of a pair alone nobody is blamed. 0: unknown.
  double of(int replica) const;

 private:
  struct Measured {
    double rate = 0;  // 0: unknown
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
