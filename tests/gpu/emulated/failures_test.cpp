// SPDX-License-Identifier: Apache-2.0
// What a failed launch says. The emulator refuses what a GPU refuses: here more shared memory than
// a block has.
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/gpu.h"
#include "worker/stage/ops/op.h"

namespace weir::stage::ops {
namespace {

using FailedLaunch = weir::test::OnGpu;

TEST_F(FailedLaunch, IsToldWithItsOpWhenOthersHaveFollowed) {
  const auto kernels = *weir::test::kernels_of(*device_, Precision::kFp32);
  const weir::device::Buffer memory = device_->allocate(1 << 20);
  auto* values = memory.as<float>();
  auto* elements = memory.as<Element>();
  kernels->run(
      AttentionForward{{.samples = 1, .sequence = 4, .heads = 1, .kv_heads = 1, .size = 4096},
                       elements,
                       elements,
                       values,
                       nullptr});
  kernels->run(Zero{values, 16});
  const Status status = kernels->status();
  cudaGetLastError();

  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, testing::EndsWith("first after AttentionForward"));
}

}  // namespace
}  // namespace weir::stage::ops
