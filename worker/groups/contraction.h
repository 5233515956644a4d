// SPDX-License-Identifier: Apache-2.0
// Measures how fast the granted averages bring replicas together. It does not look at the models:
// it applies the averages to random vectors that sum to zero (worker/groups/README.md
// "Contraction"). Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/base/random.h"

namespace weir::groups {

class Contraction {
 public:
  Contraction(int replicas, std::uint64_t seed);

  // Dead replicas do not count for the distance.
  void set_living(int replica, bool living) { living_[static_cast<std::size_t>(replica)] = living; }

  void mix(std::span<const int> members, std::span<const double> weights);
  // Ends a window and returns the factor by which the distance between replicas shrank in it. The
  // next window begins with new vectors.
  double end_window();

 private:
  static constexpr std::size_t kVectors = 4;
  void begin_window();
  double distance() const;

  Random random_;
  std::vector<std::array<double, kVectors>> values_;  // by replica
  std::vector<bool> living_;
  double at_begin_ = 0;
};

}  // namespace weir::groups
