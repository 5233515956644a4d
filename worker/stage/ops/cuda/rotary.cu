// SPDX-License-Identifier: Apache-2.0
// A block has one position: it makes the cosines and sines in double once, for all samples and
// heads.
#include "worker/stage/ops/cuda/kernel.h"
#include "worker/stage/ops/cuda/queue.h"
#include "worker/stage/ops/rotary.h"

namespace weir::stage::ops {
namespace {

constexpr int kThreads = 128;
constexpr int kMostHalf = 128;  // D/2; attention allows half of it

struct Frequencies {
  float of[kMostHalf];
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    rotary_kernel(RotaryShape shape, Frequencies frequencies, T* values) {
  static __shared__ float cosine[kMostHalf], sine[kMostHalf];
  const int half = shape.size / 2, t = static_cast<int>(blockIdx.x);
  for (int i = threadIdx.x; i < half; i += kThreads) {
    const double angle = static_cast<float>(t) * frequencies.of[i];
    cosine[i] = static_cast<float>(cos(angle));
    sine[i] = static_cast<float>(shape.direction * sin(angle));
  }
  __syncthreads();
  const int pairs = shape.samples * shape.heads * half;
  for (int i = threadIdx.x; i < pairs; i += kThreads) {
    const int pair = i % half, h = i / half % shape.heads, b = i / half / shape.heads;
    T* x = values + (std::size_t(b) * shape.sequence + t) * shape.stride + h * shape.size + pair;
    const float first = wide(x[0]), second = wide(x[half]);
    x[0] = narrow<T>(first * cosine[pair] - second * sine[pair]);
    x[half] = narrow<T>(second * cosine[pair] + first * sine[pair]);
  }
}

}  // namespace

void run_on_cuda(const Rotary& op, CudaQueue& queue) {
  Frequencies frequencies = {};
  for (int i = 0; i < op.shape.size / 2; ++i) frequencies.of[i] = rotary_frequency(op.shape, i);
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    start({queue.stream, static_cast<unsigned>(op.shape.sequence), kThreads}, rotary_kernel<T>,
          op.shape, frequencies, as<T>(op.values));
  });
}

}  // namespace weir::stage::ops
