// SPDX-License-Identifier: Apache-2.0
// The emulator's order of warps and lanes finds missing barriers. Each kernel here has them in one
// form, and in the other one of them is missing; the suite of all ops then runs in other orders,
// too (WEIR_EMULATOR_SEED).
#include <algorithm>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "worker/stage/ops/cuda/kernel.h"

namespace weir::stage::ops {
namespace {

constexpr int kThreads = 128, kLanes = 32, kSeeds = 20;

// Each thread reads what a thread of another warp has written.
template <bool kWaits>
__global__ void read_another_warp(int* out) {
  auto* shared = reinterpret_cast<int*>(dynamic_shared());
  const int own = static_cast<int>(threadIdx.x);
  shared[own] = own;
  if (kWaits) __syncthreads();
  out[own] = shared[(own + kLanes) % kThreads];
}
// Each thread writes where a thread of another warp has yet to read.
template <bool kWaits>
__global__ void overwrite_another_warp(int* out) {
  auto* shared = reinterpret_cast<int*>(dynamic_shared());
  const int own = static_cast<int>(threadIdx.x), other = (own + kLanes) % kThreads;
  shared[own] = own;
  __syncthreads();
  out[own] = shared[other];
  if (kWaits) __syncthreads();
  shared[own] = -1;
}
// The same between lanes of a warp.
template <bool kWaits>
__global__ void read_another_lane(int* out) {
  auto* shared = reinterpret_cast<int*>(dynamic_shared());
  const int own = static_cast<int>(threadIdx.x);
  shared[own] = own;
  if (kWaits) __syncwarp();
  out[own] = shared[own / kLanes * kLanes + (own + kLanes / 2) % kLanes];
}

// The number of orders in which a kernel gives what it gives in none that is right: all of them
// read numbers of 0 to kThreads - 1, each once.
int wrong_orders(void (*kernel)(int*)) {
  int wrong = 0;
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    weir::emulated::set_order(seed);
    std::vector<int> out(kThreads, -2);
    start({nullptr, 1, kThreads, kThreads * sizeof(int)}, kernel, out.data());
    std::sort(out.begin(), out.end());
    for (int i = 0; i < kThreads; ++i) {
      if (out[static_cast<std::size_t>(i)] == i) continue;
      ++wrong;
      break;
    }
  }
  return wrong;
}

TEST(EmulatorOrders, ShowAMissingBarrierBeforeAReadAndNoneWhereItIs) {
  EXPECT_EQ(wrong_orders(read_another_warp<true>), 0);
  EXPECT_GE(wrong_orders(read_another_warp<false>), kSeeds * 3 / 4);
}
TEST(EmulatorOrders, ShowAMissingBarrierBeforeAWriteAndNoneWhereItIs) {
  EXPECT_EQ(wrong_orders(overwrite_another_warp<true>), 0);
  EXPECT_GE(wrong_orders(overwrite_another_warp<false>), kSeeds / 2);
}
TEST(EmulatorOrders, ShowAMissingBarrierOfAWarpAndNoneWhereItIs) {
  EXPECT_EQ(wrong_orders(read_another_lane<true>), 0);
  EXPECT_GE(wrong_orders(read_another_lane<false>), kSeeds * 3 / 4);
}

}  // namespace
}  // namespace weir::stage::ops
