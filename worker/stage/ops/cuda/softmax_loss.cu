// SPDX-License-Identifier: Apache-2.0
// One block per row.
#include <cfloat>

#include "worker/stage/ops/cuda/block_sum.h"
#include "worker/stage/ops/cuda/queue.h"
#include "worker/stage/ops/softmax_loss.h"

namespace weir::stage::ops {
namespace {

template <class T>
__global__ void softmax_loss_kernel(int vocabulary, const std::int32_t* targets, float scale,
                                    T* logits, double* row_losses) {
  static __shared__ float shared[kSumThreads];
  T* row = logits + std::size_t{blockIdx.x} * vocabulary;
  const int target = targets[blockIdx.x];
  float most = -FLT_MAX;
  for (int v = threadIdx.x; v < vocabulary; v += blockDim.x) most = fmaxf(most, wide(row[v]));
  const float top = block_reduce(most, shared, [](float a, float b) { return fmaxf(a, b); });
  const float target_logit = wide(row[target]) - top;
  float own = 0;
  for (int v = threadIdx.x; v < vocabulary; v += blockDim.x) own += expf(wide(row[v]) - top);
  // When the sum is known, all threads have read the target's logit.
  const float sum = block_reduce(own, shared, [](float a, float b) { return a + b; });
  const float factor = scale / sum;
  for (int v = threadIdx.x; v < vocabulary; v += blockDim.x) {
    row[v] = narrow<T>(expf(wide(row[v]) - top) * factor - (v == target ? scale : 0));
  }
  if (threadIdx.x == 0) row_losses[blockIdx.x] = log(double{sum}) - target_logit;
}

}  // namespace

void run_on_cuda(const SoftmaxLoss& op, CudaQueue& queue) {
  double* row_losses = queue.scratch<double>(static_cast<std::size_t>(op.rows) + 1);
  if (row_losses == nullptr) return;
  double* total = row_losses + op.rows;
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    start({queue.stream, static_cast<unsigned>(op.rows), kSumThreads}, softmax_loss_kernel<T>,
          op.vocabulary, op.targets, op.scale, as<T>(op.logits), row_losses);
  });
  start({queue.stream, 1, kSumThreads}, sum_kernel<double>, op.rows, row_losses, total);
  cudaMemcpyAsync(op.loss, total, sizeof *total, cudaMemcpyDeviceToHost, queue.stream);
}

}  // namespace weir::stage::ops
