// SPDX-License-Identifier: Apache-2.0
// A CUDA device for a test, or a skip with the reason; vectors to the device and back.
#pragma once

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "worker/device/device.h"
#include "worker/stage/ops/kernels.h"

namespace weir::test {

// CUDA's first device, or an emulated one where the tests are built without CUDA.
Result<std::unique_ptr<device::Device>> open_gpu();
Result<std::unique_ptr<stage::ops::Kernels>> kernels_of(device::Device& device,
                                                        stage::Precision precision);

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_gpu();
    if (!opened) GTEST_SKIP() << opened.error().message;
    device_ = *std::move(opened);
  }

  template <class T>
  device::Buffer to_device(const std::vector<T>& values) {
    device::Buffer staged = device_->allocate_staging(values.size() * sizeof(T));
    std::copy(values.begin(), values.end(), staged.as<T>());
    auto uploaded = device_->upload(std::move(staged));
    EXPECT_TRUE(uploaded) << uploaded.error().message;
    return *std::move(uploaded);
  }
  std::vector<float> floats_of(const device::Buffer& buffer) {
    auto staged = device_->download(buffer);
    EXPECT_TRUE(staged) << staged.error().message;
    const float* values = staged->as<float>();
    return {values, values + buffer.size() / sizeof(float)};
  }

  std::unique_ptr<device::Device> device_;
};

}  // namespace weir::test
