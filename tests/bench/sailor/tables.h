// SPDX-License-Identifier: Apache-2.0
// Costs of Sailor's model for every range of layers and every option, looked up by its search.
// Seconds of one micro-batch.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/bench/sailor/costs.h"

namespace weir::planner {

// What does not depend on the count of replicas, for one micro-batch size.
struct SailorTables {
  struct Range {
    double seconds = 0, static_bytes = 0, activation_bytes = 0;
  };

  SailorTables(const SailorProblem& problem, const SailorCosts& costs, int micro_batch);

  std::size_t range(std::size_t option, int first, int end) const {
    const auto side = static_cast<std::size_t>(layers) + 1;
    return (option * side + static_cast<std::size_t>(first)) * side + static_cast<std::size_t>(end);
  }
  double transfer(std::size_t from, std::size_t to, int layer) const {
    return transfers[(from * options.size() + to) * (static_cast<std::size_t>(layers) + 1) +
                     static_cast<std::size_t>(layer)];
  }

  // From a stage that ends before a layer, or to one that begins with it; 0 at the model's ends.
  double out(std::size_t option, int layer) const { return at_boundary(least_out, option, layer); }
  double in(std::size_t option, int layer) const { return at_boundary(least_in, option, layer); }

  int micro_batch = 1, layers = 0;
  std::vector<SailorOption> options;
  std::vector<Range> ranges;                // by option, first and end
  std::vector<double> transfers;            // by options of both sides and layer
  std::vector<double> least_out, least_in;  // by option and layer: to or from the best option
  std::vector<double> fastest;              // of the layers before
  std::vector<double> whole;                // by option: SailorCosts::least_whole

 private:
  double at_boundary(const std::vector<double>& least, std::size_t option, int layer) const {
    if (layer == 0 || layer == layers) return 0;
    return least[option * (static_cast<std::size_t>(layers) + 1) + static_cast<std::size_t>(layer)];
  }
};

}  // namespace weir::planner
