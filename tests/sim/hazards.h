// SPDX-License-Identifier: Apache-2.0
// What happens to a job whatever anybody decides: co-tenants take bandwidth and devices, workers
// die, Prometheus does not answer, the operator's leader changes. All from a seed, so that two runs
// of one job meet the same.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace weir::sim {

// Piecewise constant, 1 before the first entry.
class Course {
 public:
  void set(double from, double value) { points_.emplace_back(from, value); }  // rising times
  double at(double time) const;

 private:
  std::vector<std::pair<double, double>> points_;
};

struct Hazards {
  std::vector<Course> node_share;  // by node: share of its bandwidth that co-tenants leave, 0..1
  std::vector<Course> slow;        // by node: factor on the time of ops, >= 1
  std::vector<std::pair<double, int>> deaths;    // time, index of the worker
  std::vector<std::pair<double, double>> blind;  // from, to: Prometheus does not answer
  std::vector<double> new_leaders;
};

struct HazardOptions {
  int nodes = 5, workers = 4;
  double horizon = 3600;  // seconds
};
Hazards random_hazards(std::uint64_t seed, const HazardOptions& options);

}  // namespace weir::sim
