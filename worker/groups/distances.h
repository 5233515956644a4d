// SPDX-License-Identifier: Apache-2.0
// How far apart the models of replicas are to be expected, from steps and averages alone: a local
// step adds independent noise of variance 1 to its model, an average takes the weighted mean.
// Squared distances follow exactly, so nothing has to be measured. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace weir::groups {

class Distances {
 public:
  explicit Distances(int replicas);  // all equal

  void stepped(int replica);
  void mixed(std::span<const int> members, std::span<const double> weights);  // of sum 1
  // The replica has the model of one of the others, nobody knows of which. None: it stays.
  void copied(int replica, std::span<const int> others);
  // Expected squared distance of each replica's model from the mean of the members' models, in
  // variances of a local step.
  std::vector<double> from_mean(std::span<const int> members,
                                std::span<const double> weights) const;

 private:
  double& at(int a, int b) { return squares_[index(a, b)]; }
  double at(int a, int b) const { return squares_[index(a, b)]; }
  std::size_t index(int a, int b) const {
    return static_cast<std::size_t>(a) * static_cast<std::size_t>(count_) +
           static_cast<std::size_t>(b);
  }

  int count_;
  std::vector<double> squares_;  // of each pair, symmetric
};

}  // namespace weir::groups
