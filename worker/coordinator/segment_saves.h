// SPDX-License-Identifier: Apache-2.0
// Saves between the steps of one plan: how long each rank copies its state, and how much longer the
// steps take for it. Segments leave out such steps, so these tell of them. No clock, no socket.
// Used only on the coordinator's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "worker/protocol/messages.h"

namespace weir::coordinator {

// One step as all ranks have told it.
struct StepWithSaves {
  std::int64_t step = 0;     // completed steps after it
  double seconds = 0;        // from its start until its parameters are updated
  double copy_behind = 0;    // seconds that a first stage then copied before it began the next one
  bool interrupted = false;  // by a save, a validation or a switch
  bool otherwise = false;    // not, or not only, by a save
  std::vector<double> copies;  // seconds of copying, by replica and stage; empty = not told
};

class SegmentSaves {
 public:
  // Steps come in order. usual: seconds of a step without a save; nothing = not known yet.
  void add(StepWithSaves step, std::optional<double> usual);
  // Medians of the newest saves. Tells nothing of fewer than two, or if no more have come.
  void tell(protocol::Segment& segment) const;

 private:
  struct Save {
    std::int64_t step = 0;
    double longer = 0;  // seconds that the steps took longer
    std::vector<double> copies;
  };
  std::deque<Save> newest_;
  std::optional<StepWithSaves> before_;
};

}  // namespace weir::coordinator
