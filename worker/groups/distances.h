// SPDX-License-Identifier: Apache-2.0
// How far apart the models of replicas are to be expected, from steps and averages alone. A local
// step adds an update of variance 1, of which a part is that of the replica's step before, for
// optimizers keep a momentum and averages leave it where it is: whoever is on its own goes off at
// more than the square root of its steps. An average takes the weighted mean. Covariances follow
// exactly, so nothing has to be measured. Pure.
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
  // Expected squared distance between the mean of these models and the mean of those, in variances
  // of a local step.
  double between(std::span<const int> these, std::span<const int> those) const;

 private:
  double& at(std::vector<double>& matrix, int a, int b) const { return matrix[index(a, b)]; }
  double at(const std::vector<double>& matrix, int a, int b) const { return matrix[index(a, b)]; }
  std::size_t index(int a, int b) const {
    return static_cast<std::size_t>(a) * static_cast<std::size_t>(count_) +
           static_cast<std::size_t>(b);
  }

  int count_;
  std::vector<double> models_;   // covariance of two models, per coordinate
  std::vector<double> updates_;  // of a model and the last update of a replica
};

}  // namespace weir::groups
