// SPDX-License-Identifier: Apache-2.0
// For a weighted mean m of models x_i: |m - y|^2 = sum w_i |x_i - y|^2 - 1/2 sum w_i w_j |x_i -
// x_j|^2.
#include "worker/groups/distances.h"

#include <algorithm>
#include <cstddef>

namespace weir::groups {

Distances::Distances(int replicas)
    : count_(replicas),
      squares_(static_cast<std::size_t>(replicas) * static_cast<std::size_t>(replicas)) {}

void Distances::stepped(int replica) {
  for (int q = 0; q < count_; ++q) {
    if (q == replica) continue;
    at(replica, q) += 1;
    at(q, replica) += 1;
  }
}

void Distances::mixed(std::span<const int> members, std::span<const double> weights) {
  const std::vector<double> to = from_mean(members, weights);
  for (const int p : members) {
    for (int q = 0; q < count_; ++q) at(p, q) = at(q, p) = to[static_cast<std::size_t>(q)];
  }
  for (const int p : members) {
    for (const int q : members) at(p, q) = 0;
  }
}

void Distances::copied(int replica, std::span<const int> others) {
  if (others.empty()) return;
  for (int q = 0; q < count_; ++q) {
    if (q == replica) continue;
    double sum = 0;
    for (const int p : others) sum += at(p, q);
    at(replica, q) = at(q, replica) = sum / static_cast<double>(others.size());
  }
}

std::vector<double> Distances::from_mean(std::span<const int> members,
                                         std::span<const double> weights) const {
  std::vector<double> squares(static_cast<std::size_t>(count_));
  double inside = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (int q = 0; q < count_; ++q) {
      squares[static_cast<std::size_t>(q)] += weights[i] * at(members[i], q);
    }
    for (std::size_t j = 0; j < members.size(); ++j) {
      inside += weights[i] * weights[j] * at(members[i], members[j]);
    }
  }
  for (double& square : squares) square = std::max(0.0, square - inside / 2);
  return squares;
}

}  // namespace weir::groups
