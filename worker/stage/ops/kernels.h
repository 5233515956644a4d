// SPDX-License-Identifier: Apache-2.0
// Runs ops on the device of a stage, in the precision for which the kernels were made. Ops run in
// the order of the calls. On devices other than the host they are only enqueued, and a failure
// shows at status() or Device::synchronize(). Engine thread only.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <span>

#include "worker/base/result.h"
#include "worker/device/device.h"
#include "worker/stage/ops/op.h"

namespace weir::stage::ops {

// Ops that a device has recorded with their arguments, and enqueues as one.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual Status launch() = 0;  // kInternal: nothing was enqueued
};

class Kernels {
 public:
  virtual ~Kernels() = default;
  virtual void run(const Op& op) = 0;

  // kInternal if an op could not be enqueued, with its text. The stage checks it after each op.
  virtual Status status() const { return Unit{}; }

  // True if this device can record ops as graphs.
  virtual bool makes_graphs() const { return false; }
  // Makes a graph of `ops` without running them. The kernels must outlive it. All ops must have run
  // before with the same sizes, so that no memory is missing. kInternal: the device refused; ops
  // can be run as before.
  virtual Result<std::unique_ptr<Graph>> make_graph(std::span<const Op> /*ops*/) {
    return Error{Code::kInternal, "this device makes no graphs"};
  }
};

// The kernels of the device, which must outlive them. kInternal: the device's libraries failed.
Result<std::unique_ptr<Kernels>> make_kernels(device::Device& device, Precision precision);
// In bf16 these kernels are a reference for other devices: each op works on widened copies of its
// operands, in memory that no device counts. threads, largest_least: of the team (team.h).
std::unique_ptr<Kernels> make_host_kernels(
    Precision precision, int threads = 1,
    std::ptrdiff_t largest_least = std::numeric_limits<std::ptrdiff_t>::max());
Result<std::unique_ptr<Kernels>> make_cuda_kernels(device::Device& device,
                                                   Precision precision);  // WEIR_CUDA only

}  // namespace weir::stage::ops
