// SPDX-License-Identifier: Apache-2.0
// Exit codes of weir-worker (worker/app/README.md), by which the operator knows why a worker ended
// (crds/README.md "Exit codes").
#pragma once

namespace weir::protocol {

enum class Exit : int {
  kFinished = 0,
  kCrash = 1,
  kConfiguration = 2,
  kPeerLost = 80,
  kOutOfMemory = 81,
  kDeviceFault = 82,
  kCheckpoint = 83,
  kDiverged = 85,
  kTerminated = 143,
};

}  // namespace weir::protocol
