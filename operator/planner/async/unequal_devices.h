// SPDX-License-Identifier: Apache-2.0
// The steady bottleneck on unequal devices: several classes, or servers whose links inside are
// faster than those between them. Costs are those of engine.h, with the class's times and the
// rate that the devices taken have. A dynamic program over ideals and what is used of the devices;
// exact over the ideals it is given.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "operator/planner/graph/dag.h"
#include "operator/planner/graph/ideals.h"

namespace weir::planner {

// A stage taken in some state of the devices: the state after it, who runs it, and the rates (bytes
// per second) of its AllReduce and of its boundaries.
struct Taking {
  int next = 0;
  int device_class = 0, column = 0, ranks = 1;
  double ring = 1e9, in = 1e9, out = 1e9;
};

struct DeviceStates {
  std::vector<std::vector<Taking>> takings;  // by state; 0: nothing is used
  std::vector<std::vector<int>> left;        // by state and class: devices not yet used or skipped
};

// Counts of used devices by class, one rate for all; columns[c]: times of class c. Nothing if there
// are more than `most` states.
std::optional<DeviceStates> states_of_counts(const std::vector<int>& counts,
                                             const std::vector<int>& columns, double rate,
                                             int most);
// One class, stages in the order of servers: a stage has neighbouring slots, a server's last ones
// may stay idle. A stage on one server has the rate inside it, and so has a boundary of two such.
DeviceStates states_of_servers(int servers, int devices_each, double inside, double between);

struct UnequalPlan {
  std::vector<std::size_t> ends;  // ideal up to and with each stage
  std::vector<Taking> stages;
  double value = 0, lower_bound = 0;  // seconds
  bool proved = false;                // all ideals were given and the search ended by itself
  std::int64_t pairs = 0;
};

// transfers: boundaries count. `stop` is asked every few milliseconds; may be empty. most_work:
// takings that each of four searches may look at, about 5 ns each (but the first, over few ideals,
// ends by itself); over it the plan is not proved.
UnequalPlan plan_unequal(const Dag& dag, const Ideals& ideals, const DeviceStates& states,
                         bool transfers, const std::function<bool()>& stop,
                         std::int64_t most_work = 250'000'000);

}  // namespace weir::planner
