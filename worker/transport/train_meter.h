// SPDX-License-Identifier: Apache-2.0
// Measures at the receiver how fast the bytes of one peer arrive in a collective. A peer sends
// trains of frames: all its contributions follow each other, and so do results that do not wait for
// a third member. A single frame tells little: if the end of a short one waits for bandwidth that
// others use, or for an acknowledgement, the frame looks slow. So a whole train counts as one
// message (busy_meter.h). One per connection, used by its thread only.
#pragma once

#include <optional>

#include "worker/transport/busy_meter.h"

namespace weir::transport {

class TrainMeter {
 public:
  // Adds frames in the order of their arrival. follows: the frame belongs to the same phase of the
  // same operations as the previous one. With gap = first of the frame - last of the train:
  //   gap <= half of the train's time so far, or 0.1 ms   the frame belongs to the train
  //   else                                                it begins a new train: a side has waited
  // A train of which more than half was there at the receiver's first read tells nothing. Returns
  // what this frame adds to the result of its train; busy may shrink. O(1).
  Arrival add(const BusyMeter::Message& frame, bool follows);

 private:
  std::optional<BusyMeter::Message> train_;
  Arrival reported_;  // reported so far for train_
};

}  // namespace weir::transport
