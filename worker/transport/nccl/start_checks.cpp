// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/start_checks.h"

namespace weir::transport::nccl {
namespace {

constexpr int kLeastNccl = 22800;     // cuda_nccl_api.cpp needs its API
constexpr int kLeastCapability = 80;  // as for the CUDA device, worker/device/cuda

// E.g. 22809 -> "2.28.9".
std::string nccl_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}
// E.g. 13000 -> "13.0".
std::string cuda_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

Status check_start(const Facts& facts) {
  if (facts.nccl < kLeastNccl) {
    return invalid("NCCL " + nccl_text(facts.nccl) + " is loaded, this worker needs " +
                   nccl_text(kLeastNccl) + " or newer");
  }
  if (facts.driver == 0) return invalid("NCCL: this machine has no CUDA driver");
  if (facts.driver < facts.runtime) {
    return invalid("NCCL: the driver supports CUDA " + cuda_text(facts.driver) +
                   ", this worker needs " + cuda_text(facts.runtime));
  }
  if (facts.capability < kLeastCapability) {
    return invalid("NCCL: " + facts.gpu_name + " has compute capability " +
                   std::to_string(facts.capability / 10) + "." +
                   std::to_string(facts.capability % 10) +
                   ", the GPU worker needs 8.0 or more (A100, L4, H100)");
  }
  return Unit{};
}

Status check_peer(const Facts& own, const PeerFacts& peer) {
  if (own.gpu == peer.gpu) {
    return Error{Code::kConflict, "uses the same GPU as this worker (" + own.gpu +
                                      "): NCCL needs one for each, TCP does not"};
  }
  if (own.nccl / 100 != peer.nccl / 100) {
    return Error{Code::kConflict, "has NCCL " + nccl_text(peer.nccl) + ", this worker " +
                                      nccl_text(own.nccl) + ": both need the same"};
  }
  return Unit{};
}

}  // namespace weir::transport::nccl
