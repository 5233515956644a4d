// SPDX-License-Identifier: Apache-2.0
// How fast the bytes of one peer came in a collective, by the receiver's clock. What a peer sends
// there are trains of frames: all its contributions follow each other, and the results as far as
// they wait for no third member. One frame says little: a short one whose end waits for the port,
// which others use, or for an acknowledgement would count as slow as it is late. So a train counts
// as one message (busy_meter.h). One per connection, its thread only.
#pragma once

#include <optional>

#include "worker/transport/busy_meter.h"

namespace weir::transport {

class TrainMeter {
 public:
  // Frames in the order of their arrival; follows: of the same phase of the same operations as the
  // frame before. With gap = the frame's first - the train's last:
  //   gap <= half of the train's time so far, or 0.1 ms   the frame belongs to it
  //   else                                                a train of its own: somebody waited
  // A train of which more than half was there when the receiver first looked says nothing. Returned
  // is what this frame adds to what its train says; busy may shrink. O(1).
  Arrival add(const BusyMeter::Message& frame, bool follows);

 private:
  std::optional<BusyMeter::Message> train_;
  Arrival told_;  // of train_
};

}  // namespace weir::transport
