// SPDX-License-Identifier: Apache-2.0
// Exit codes of weir-worker, by which the operator knows why a worker ended (crds/README.md "Exit
// codes").
#pragma once

namespace weir::protocol {

enum class Exit : int {
  kFinished = 0,
  kCrash = 1,          // or no first plan came in time
  kConfiguration = 2,  // also initial values that are of another model
  kPeerLost = 80,      // and no new plan came in time
  kOutOfMemory = 81,   // of the device
  kDeviceFault = 82,
  kCheckpoint = 83,   // cannot be read, or the last one was not saved; also training data
  kModelFailed = 84,  // a layer that somebody else has written
  kDiverged = 85,     // too many steps in a row without a finite loss and gradient
  kTerminated = 143,
};

}  // namespace weir::protocol
