// SPDX-License-Identifier: Apache-2.0
// The devices of a cluster grouped into kinds that a stage may use alike, the links between them,
// and who gets which stage. Inside the room only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "operator/planner/chain.h"
#include "operator/planner/cost.h"
#include "operator/planner/model/model.h"

namespace weir::planner {

// Devices with equal class, memory and stage range. On which node they are does not matter here.
struct Kind {
  ClassIndex device_class = 0;
  std::int64_t usable_bytes = 0;  // after the reserve; 0 = no limit
  int first_stage = 0, last_stage = 0;
  std::vector<int> devices;  // in the order of the cluster
};

struct Slots {
  std::vector<std::string> classes;  // by ClassIndex
  std::vector<Kind> kinds;
  std::vector<int> kind_of, node_of;                // by device
  std::map<std::pair<int, int>, LinkTime> between;  // by node, one direction; others: usual
  LinkTime usual, local;
  bool uniform = true;  // every pair of devices has the same link, which is `best`
  LinkTime best;        // least seconds per byte, least latency of any pair in use
};

Slots slots_of(const Cluster& cluster);
LinkTime link_of(const Slots& slots, int from_device, int to_device);
std::vector<BoundaryLink> links_of(const Slots& slots, const std::vector<int>& devices);

// Kinds for stages 0..S-1, each device used once, the one with the smallest last_stage first (an
// interval matching: finds one if there is one). Empty: impossible; then *stuck is the stage
// without a device.
std::vector<int> first_fit_kinds(const Slots& slots, int stages, int* stuck);
// The first devices of each kind in order.
std::vector<int> devices_in_order(const Slots& slots, const std::vector<int>& kinds);
// Devices of the same kinds such that the step is shortest over real links: every order if there
// are at most 5,040, else 2-swaps from the given devices. Deterministic.
std::vector<int> place(const Slots& slots, const std::vector<int>& devices, const Chain& chain,
                       const Shape& shape, const Cut& cut);

}  // namespace weir::planner
