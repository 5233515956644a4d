// SPDX-License-Identifier: Apache-2.0
// Checks whether NCCL can be used here, and with a peer. Pure; each error is one line.
#pragma once

#include <string>

#include "worker/base/result.h"
#include "worker/transport/nccl/nccl_api.h"

namespace weir::transport::nccl {

// At the start of the worker. kInvalid: NCCL below 2.28, a driver older than the program's CUDA, or
// a GPU below compute capability 8.0 (Volta, Turing).
Status check_start(const Facts& facts);

// Facts that a peer reports when links are made.
struct PeerFacts {
  int nccl = 0;
  std::string gpu;
};
// kConflict: both ends use one GPU, or different versions of NCCL (major or minor).
Status check_peer(const Facts& own, const PeerFacts& peer);

}  // namespace weir::transport::nccl
