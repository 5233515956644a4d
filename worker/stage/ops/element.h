// SPDX-License-Identifier: Apache-2.0
// The common part of all ops. An op is a struct of its arguments, in the header named after it: the
// contract (shapes, += or =), `fields()` with all of them in order, and two functions that run it.
//   run_on_host(op, host): at once, on the threads of a team; the specification of the other one.
//   Its bits do not depend on the number of threads.
//   run_on_cuda(op, queue): enqueues its kernels. Sums have a fixed order (no floating-point
//   atomics), so equal input gives equal bits on equal devices.
// Pointers are memory of the device that runs the op. Activations, their gradients and weights are
// Elements. Sums over many terms are float: gradients of parameters, statistics, logarithms of
// sums. In bf16 each op computes in float and rounds once when it stores. C++17: nvcc compiles it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "worker/stage/precision.h"

namespace weir::stage::ops {

class CudaQueue;  // cuda/queue.h
class Team;       // team.h

// The host as an op sees it.
struct Host {
  Precision precision;
  Team& team;
};

// One number in the precision of the kernels; only they know its type.
struct Element;
template <class T>
T* as(Element* elements) {
  return reinterpret_cast<T*>(elements);
}
template <class T>
const T* as(const Element* elements) {
  return reinterpret_cast<const T*>(elements);
}

}  // namespace weir::stage::ops
