// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "tests/gpu/gpu.h"

namespace weir::test {
namespace {

using GpuDevice = OnGpu;

TEST_F(GpuDevice, CopiesThereAndBack) {
  std::vector<float> values(100'003);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.5F;

  EXPECT_EQ(floats_of(to_device(values)), values);
}

TEST_F(GpuDevice, CountsBytesAndRefusesMoreThanItHas) {
  const std::int64_t before = device_->bytes_in_use();
  {
    const device::Buffer buffer = device_->allocate(12'345);
    ASSERT_TRUE(buffer);
    EXPECT_EQ(device_->bytes_in_use(), before + 12'345);
  }
  EXPECT_EQ(device_->bytes_in_use(), before);
  EXPECT_FALSE(device_->allocate(static_cast<std::size_t>(device_->memory_bytes()) * 2));
  EXPECT_TRUE(device_->synchronize()) << "a refused request breaks nothing";
}

TEST_F(GpuDevice, SharedMemoryIsSeenByHostAndOps) {
  const device::Buffer buffer = device_->allocate_shared(64 * sizeof(float));
  ASSERT_TRUE(buffer);
  for (int i = 0; i < 64; ++i) buffer.as<float>()[i] = 1;
  auto kernels = kernels_of(*device_, stage::Precision::kFp32);
  ASSERT_TRUE(kernels) << kernels.error().message;
  (*kernels)->zero(buffer.as<float>(), 32);
  ASSERT_TRUE(device_->synchronize());

  EXPECT_EQ(buffer.as<float>()[31], 0);
  EXPECT_EQ(buffer.as<float>()[32], 1);
}

}  // namespace
}  // namespace weir::test
