// SPDX-License-Identifier: Apache-2.0
// Ops that fill and copy memory.
#pragma once

#include "worker/stage/ops/element.h"

namespace weir::stage::ops {

struct Zero {
  float* values;
  std::size_t count;
  auto fields() const { return std::tie(values, count); }
};
void run_on_host(const Zero& op, const Host& host);
void run_on_cuda(const Zero& op, CudaQueue& queue);

struct Copy {
  void* to;
  const void* from;  // host or device memory
  std::size_t bytes;
  auto fields() const { return std::tie(to, from, bytes); }
};
void run_on_host(const Copy& op, const Host& host);
void run_on_cuda(const Copy& op, CudaQueue& queue);

// to = from, rounded to the precision.
struct RoundValues {
  std::size_t count;
  const float* from;
  Element* to;
  auto fields() const { return std::tie(count, from, to); }
};
void run_on_host(const RoundValues& op, const Host& host);
void run_on_cuda(const RoundValues& op, CudaQueue& queue);

}  // namespace weir::stage::ops
