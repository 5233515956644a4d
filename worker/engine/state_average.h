// SPDX-License-Identifier: Apache-2.0
// Partial synchronisation on a rank: after its own update a replica averages its
// parameters with the members of its group; with everybody's whole state where all replicas must be
// equal. Either between two steps, in the memory of the gradients, which nobody needs then; or,
// over links that are slow, beside the next step, in memory of its own: until the update at the end
// of that step nobody changes the parameters, and the update is then of the mean (delayed
// averaging: Wang et al., Overlap Local-SGD, 2020). Engine thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
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
  // References outlive the object; the stage's update is done, also on its device. own: bytes() of
  // memory; empty: that of the gradients.
  StateAverage(transport::Collective& collective, stage::Stage& stage, device::Device& device,
               Grant grant, device::Buffer own = {});

  static std::size_t bytes(stage::Stage& stage);
  const Grant& grant() const { return grant_; }

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
  const Grant grant_;
  device::Buffer own_;
  std::vector<Run> runs_;
  std::size_t part_ = 0, parts_ = 0;  // of each run: the next one, how many
  std::uint32_t operations_ = 0;
};

// Of a rank: an average that goes on during a step, and its memory, kept from the first one on.
struct AverageBeside {
  device::Buffer memory;
  std::optional<StateAverage> average;
};

}  // namespace weir::engine
