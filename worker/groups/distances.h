// SPDX-License-Identifier: Apache-2.0
// Expected distances between the models of replicas, computed from steps and averages alone. A
// local step adds an update of variance 1. It is correlated with the replica's previous update,
// because optimizers keep momentum and averages leave it unchanged. A replica on its own therefore
// drifts away faster than the square root of its steps. An average takes the weighted mean.
// Covariances follow exactly, so nothing is measured. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace weir::groups {

class Distances {
 public:
  explicit Distances(int replicas);  // all models equal

  void stepped(int replica);
  void mixed(std::span<const int> members, std::span<const double> weights);  // weights sum to 1
  // The replica now has the model of one of the others; which one is not known. If there are no
  // others, it keeps its model.
  void copied(int replica, std::span<const int> others);
  // Expected squared distance between the mean of `these` models and the mean of `those`. The unit
  // is the variance of a local step.
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
  std::vector<double> updates_;  // covariance of a model and the last update of a replica
};

}  // namespace weir::groups
