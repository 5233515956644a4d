// SPDX-License-Identifier: Apache-2.0
// One block per row, which reads it twice, in the widest packs: forwards for the largest logit and
// the sum of exponentials at once (Milakov and Gimelshein, "Online normalizer calculation for
// softmax", 2018), and backwards for the gradient, so that the second pass begins with what the
// first one has left in the caches.
#include <cfloat>

#include "worker/stage/ops/cuda/block_sum.h"
#include "worker/stage/ops/cuda/queue.h"
#include "worker/stage/ops/softmax_loss.h"

namespace weir::stage::ops {
namespace {

constexpr int kMostThreads = 1024;
constexpr int kLongRow = 8192;  // a row from here on has kMostThreads

// The largest of some logits, and the sum of e^(logit - top).
struct Softmax {
  float top, sum;
};
struct Joined {
  __device__ Softmax operator()(const Softmax& a, const Softmax& b) const {
    const float top = fmaxf(a.top, b.top);
    return {top, a.sum * expf(a.top - top) + b.sum * expf(b.top - top)};
  }
};

// kWidth divides the vocabulary.
template <int kWidth, class T>
__global__ void __launch_bounds__(kMostThreads)
    softmax_loss_kernel(int vocabulary, const std::int32_t* targets, float scale, T* logits,
                        double* row_losses) {
  static __shared__ Softmax shared[kMostThreads];
  T* row = logits + std::size_t{blockIdx.x} * vocabulary;
  const int target = targets[blockIdx.x], packs = vocabulary / kWidth;
  const int own = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const float target_logit = own == 0 ? wide(row[target]) : 0;
  Softmax found = {-FLT_MAX, 0};
  for (int i = own; i < packs; i += threads) {
    const auto pack = load<kWidth>(row + i * kWidth);
    float top = found.top;
    for (int e = 0; e < kWidth; ++e) top = fmaxf(top, wide(pack.of[e]));
    found.sum *= expf(found.top - top);
    for (int e = 0; e < kWidth; ++e) found.sum += expf(wide(pack.of[e]) - top);
    found.top = top;
  }
  // When the sum is known, the target's logit has been read.
  const Softmax all = block_reduce(found, shared, Joined{});
  const float factor = scale / all.sum;
  for (int i = packs - 1 - own; i >= 0; i -= threads) {
    auto pack = load<kWidth>(row + i * kWidth);
    for (int e = 0; e < kWidth; ++e) {
      const float probability = expf(wide(pack.of[e]) - all.top) * factor;
      pack.of[e] = narrow<T>(probability - (i * kWidth + e == target ? scale : 0));
    }
    store(row + i * kWidth, pack);
  }
  if (own == 0) row_losses[blockIdx.x] = log(double{all.sum}) - (target_logit - all.top);
}

}  // namespace

void run_on_cuda(const SoftmaxLoss& op, CudaQueue& queue) {
  double* row_losses = queue.scratch<double>(static_cast<std::size_t>(op.rows) + 1);
  if (row_losses == nullptr) return;
  double* total = row_losses + op.rows;
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    constexpr int kWidth = kWidestPack / sizeof(T);
    const bool packs = op.vocabulary % kWidth == 0 && aligned(as<T>(op.logits));
    const auto kernel = packs ? softmax_loss_kernel<kWidth, T> : softmax_loss_kernel<1, T>;
    const unsigned threads = op.vocabulary < kLongRow ? kSumThreads : kMostThreads;
    start({queue.stream, static_cast<unsigned>(op.rows), threads}, kernel, op.vocabulary,
          op.targets, op.scale, as<T>(op.logits), row_losses);
  });
  start({queue.stream, 1, kSumThreads}, sum_kernel<double>, op.rows, row_losses, total);
  cudaMemcpyAsync(op.loss, total, sizeof *total, cudaMemcpyDeviceToHost, queue.stream);
}

}  // namespace weir::stage::ops
