// SPDX-License-Identifier: Apache-2.0
#include "worker/groups/contraction.h"

#include <cmath>
#include <cstddef>

namespace weir::groups {

Contraction::Contraction(int replicas, std::uint64_t seed)
    : random_(seed),
      values_(static_cast<std::size_t>(replicas)),
      living_(static_cast<std::size_t>(replicas), true) {
  begin_window();
}

void Contraction::begin_window() {
  for (auto& vector : values_) {
    for (double& value : vector) value = random_.normal();
  }
  at_begin_ = distance();
}

double Contraction::distance() const {
  double squares = 0;
  for (std::size_t k = 0; k < kVectors; ++k) {
    double sum = 0, count = 0;
    for (std::size_t p = 0; p < values_.size(); ++p) {
      if (!living_[p]) continue;
      sum += values_[p][k];
      ++count;
    }
    for (std::size_t p = 0; p < values_.size(); ++p) {
      const double difference = values_[p][k] - sum / count;
      if (living_[p]) squares += difference * difference;
    }
  }
  return std::sqrt(squares);
}

void Contraction::mix(std::span<const int> members, std::span<const double> weights) {
  for (std::size_t k = 0; k < kVectors; ++k) {
    double mean = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
      mean += weights[i] * values_[static_cast<std::size_t>(members[i])][k];
    }
    for (const int member : members) values_[static_cast<std::size_t>(member)][k] = mean;
  }
}

double Contraction::end_window() {
  const double factor = at_begin_ > 0 ? distance() / at_begin_ : 0;
  begin_window();
  return factor;
}

}  // namespace weir::groups
