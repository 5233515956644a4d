// SPDX-License-Identifier: Apache-2.0
// Partial synchronisation on a rank: after its own update, a replica averages its parameters with
// the members of its group. If all replicas must become equal, all of them average their whole
// state. An average runs either between two steps, in the memory of the gradients, which is free
// then, or, over slow links, during the next step in memory of its own. Until the update at the end
// of that step the parameters do not change; the update then applies to the mean (delayed
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
#include "worker/protocol/messages.h"
#include "worker/stage/stage.h"
#include "worker/transport/collective.h"

namespace weir::engine {

// Returns why this replica, one of `replicas`, cannot carry out the grant; empty if it can.
std::string objection(const protocol::Grant& grant, int replica, int replicas);

class StateAverage {
 public:
  // The references must outlive the object. The update of the stage is done, also on its device.
  // own: bytes() of memory; empty: the memory of the gradients is used.
  StateAverage(transport::Collective& collective, stage::Stage& stage, device::Device& device,
               protocol::Grant grant, device::Buffer own = {});

  static std::size_t bytes(stage::Stage& stage);
  const protocol::Grant& grant() const { return grant_; }

  // Begins the next part: the parameters, then, if all replicas meet, the optimizer's moments.
  // Returns false if no part is left. Members hold their own values until the collective is done
  // and take() is called.
  bool post_next();
  Status take();  // kInternal: the device has failed
  // Abandons the round: members keep their own values, except for parts that were taken. Returns
  // the replica that did not come, -1 = unknown. An error means that the collective has failed.
  Result<int> abandon();

 private:
  // Several parameters that are adjacent in memory.
  struct Run {
    std::array<std::span<float>, 3> parts;  // value, first and second moment
    std::span<float> scratch;               // as long as each of them
  };

  std::uint64_t tag() const;

  transport::Collective& collective_;
  device::Device& device_;
  const protocol::Grant grant_;
  device::Buffer own_;
  std::vector<Run> runs_;
  std::size_t part_ = 0, parts_ = 0;  // of each run: index of the next part, number of parts
  std::uint32_t operations_ = 0;
};

// An average that runs during a step, and its memory, which is kept after the first one.
struct AverageBeside {
  device::Buffer memory;
  std::optional<StateAverage> average;
};

}  // namespace weir::engine
