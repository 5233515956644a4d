// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/cuda/elementwise.h"
#include "worker/stage/ops/cuda/queue.h"
#include "worker/stage/ops/exact_sum.h"

namespace weir::stage::ops {
namespace {

struct ExactAddition {
  const float* terms;
  double* sums;
  __device__ void operator()(std::size_t i) const {
    constexpr double kMagic = 384;  // as in exact_sum_host.cpp; the intrinsics are never contracted
    sums[i] += __dadd_rn(__dadd_rn(terms[i], kMagic), -kMagic);
  }
};
struct SumRounding {
  const double* sums;
  float* values;
  __device__ void operator()(std::size_t i) const { values[i] = __double2float_rn(sums[i]); }
};

struct Joining {
  double* first;
  double* last;
  __device__ void operator()(std::size_t i) const { first[i] = last[i] = first[i] + last[i]; }
};

}  // namespace

void run_on_cuda(const AddExactly& op, CudaQueue& queue) {
  launch_for_each(queue.stream, op.count, ExactAddition{op.terms, op.sums});
}

void run_on_cuda(const RoundSums& op, CudaQueue& queue) {
  launch_for_each(queue.stream, op.count, SumRounding{op.sums, op.values});
}

void run_on_cuda(const JoinSums& op, CudaQueue& queue) {
  launch_for_each(queue.stream, op.count, Joining{op.first, op.last});
}

}  // namespace weir::stage::ops
