// SPDX-License-Identifier: Apache-2.0
// One element of y a thread and turn of its loop.
#include "worker/stage/ops/cuda/elementwise.h"
#include "worker/stage/ops/cuda/queue.h"
#include "worker/stage/ops/swiglu.h"

namespace weir::stage::ops {
namespace {

template <class T>
struct Forward {
  std::size_t channels;
  const T* gate_up;
  T* y;
  __device__ void operator()(std::size_t i) const {
    const T* gate = gate_up + i + i / channels * channels;
    const float g = wide(*gate);
    y[i] = narrow<T>(g / (1 + expf(-g)) * wide(gate[channels]));
  }
};

template <class T>
struct Backward {
  std::size_t channels;
  const T *gate_up, *dy;
  T* dgate_up;
  __device__ void operator()(std::size_t i) const {
    const std::size_t at = i + i / channels * channels;
    const float g = wide(gate_up[at]), up = wide(gate_up[at + channels]), d = wide(dy[i]);
    const float s = 1 / (1 + expf(-g));
    dgate_up[at] = narrow<T>(d * up * (s * (1 + g * (1 - s))));
    dgate_up[at + channels] = narrow<T>(d * g * s);
  }
};

std::size_t count_of(const SwigluShape& shape) {
  return static_cast<std::size_t>(shape.rows) * shape.channels;
}

}  // namespace

void run_on_cuda(const SwigluForward& op, CudaQueue& queue) {
  const std::size_t channels = op.shape.channels;
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    launch_for_each(queue.stream, count_of(op.shape),
                    Forward<T>{channels, as<T>(op.gate_up), as<T>(op.y)});
  });
}

void run_on_cuda(const SwigluBackward& op, CudaQueue& queue) {
  const std::size_t channels = op.shape.channels;
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    launch_for_each(queue.stream, count_of(op.shape),
                    Backward<T>{channels, as<T>(op.gate_up), as<T>(op.dy), as<T>(op.dgate_up)});
  });
}

}  // namespace weir::stage::ops
