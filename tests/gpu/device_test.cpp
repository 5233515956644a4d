// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "tests/gpu/gpu.h"

namespace weir::test {
namespace device_test {

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

// More than passes through pinned memory at a time, and ragged.
TEST_F(GpuDevice, ReadsAndWritesAnyHostMemoryInOrderWithOps) {
  constexpr std::size_t kCount = 5'000'003;
  std::vector<float> values(kCount, 1), back(kCount);
  const device::Buffer buffer = device_->allocate(kCount * sizeof(float));
  auto kernels = kernels_of(*device_, stage::Precision::kFp32);
  ASSERT_TRUE(kernels) << kernels.error().message;
  ASSERT_TRUE(device_->write(buffer.data(), values.data(), buffer.size()));
  (*kernels)->run(stage::ops::Zero{buffer.as<float>() + 1, kCount - 2});

  ASSERT_TRUE(device_->read(back.data(), buffer.data(), buffer.size()));

  EXPECT_EQ(back.front(), 1);
  EXPECT_EQ(back.back(), 1);
  EXPECT_EQ(std::count(back.begin(), back.end(), 0.0F), static_cast<std::ptrdiff_t>(kCount) - 2);
}

TEST_F(GpuDevice, CopiesBesideOpsWhatTheOpsBeforeHaveMade) {
  constexpr std::size_t kCount = 3'000'001;
  auto kernels = kernels_of(*device_, stage::Precision::kFp32);
  ASSERT_TRUE(kernels) << kernels.error().message;
  const device::Buffer buffer = to_device(std::vector<float>(kCount, 1)),
                       other = to_device(std::vector<float>(kCount, 1)),
                       staged = device_->allocate_staging(kCount * sizeof(float));
  (*kernels)->run(stage::ops::Zero{buffer.as<float>(), kCount});

  const auto copy = device_->read_beside(staged.data(), buffer.data(), buffer.size());
  (*kernels)->run(stage::ops::Zero{other.as<float>(), kCount});

  ASSERT_TRUE(copy) << copy.error().message;
  ASSERT_TRUE((*copy)->wait());
  const float* values = staged.as<float>();
  EXPECT_EQ(std::count(values, values + kCount, 0.0F), static_cast<std::ptrdiff_t>(kCount));
}

TEST_F(GpuDevice, CopiesFromStagingMemoryAsAnOp) {
  const device::Buffer staged = device_->allocate_staging(64 * sizeof(float)),
                       buffer = device_->allocate(64 * sizeof(float));
  std::fill_n(staged.as<float>(), 64, 3.0F);
  ASSERT_TRUE(device_->copy(buffer.data(), staged.data(), buffer.size()));
  ASSERT_TRUE(device_->synchronize());

  EXPECT_EQ(floats_of(buffer), std::vector<float>(64, 3));
}

}  // namespace device_test
}  // namespace weir::test
