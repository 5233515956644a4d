// SPDX-License-Identifier: Apache-2.0
// Partial synchronisation on a rank (scheduling.md 7.4): after its own update a replica averages
// parameters with the members of its group; with everybody's whole state where all replicas must be
// equal. In the memory of the gradients, which nobody needs between two steps. Engine thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/base/result.h"
#include "worker/device/device.h"
#include "worker/engine/switch_point.h"
#include "worker/stage/stage.h"
#include "worker/transport/collective.h"

namespace weir::engine {

// Why this replica, one of so many, cannot do what the grant says; empty: it can.
std::string objection(const Grant& grant, int replica, int replicas);

class StateAverage {
 public:
  // References outlive the object; the stage's update is done, also on its device.
  StateAverage(transport::Collective& collective, stage::Stage& stage, device::Device& device,
               const Grant& grant);

  // Begins the next part: parameters, then, in a meeting of all, the optimizer's moments. False:
  // none is left. Members hold their own values until the collective has done it all and take()
  // is called.
  bool post_next();
  Status take();  // kInternal: the device has failed
  // Gives the round up: members hold their own values, but for parts that were taken. The replica
  // that did not come, -1: not known. Errors: the collective is over.
  Result<int> abandon();

 private:
  // Neighbours in memory, of several parameters.
  struct Run {
    std::array<std::span<float>, 3> parts;  // value, first and second moment
    std::span<float> scratch;               // as long as each of them
  };

  std::uint64_t tag() const;

  transport::Collective& collective_;
  device::Device& device_;
  const Grant& grant_;
  std::vector<Run> runs_;
  std::size_t part_ = 0, parts_ = 0;  // of each run: the next one, how many
  std::uint32_t operations_ = 0;
};

}  // namespace weir::engine
