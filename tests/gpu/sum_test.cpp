// SPDX-License-Identifier: Apache-2.0
// The kernels that add the replicas' gradients, average their parameters and add up the squares of
// a gradient, against the host: the same bits, as those over NCCL and over TCP, and stages on other
// devices, must not differ.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "tests/gpu/gpu.h"
#include "tests/worker/stage/ops/numeric.h"
#include "worker/base/random.h"
#include "worker/device/cuda/cuda_device.h"
#include "worker/stage/ops/squares.h"
#include "worker/transport/collective.h"
#include "worker/transport/nccl/segment_sum.h"

namespace weir::test {
namespace sum_test {

class SegmentSums : public OnGpu {
 protected:
  // Of each rank's part.
  template <class T>
  static std::vector<const T*> starts_of(const T* inputs, std::size_t ranks, std::size_t count) {
    std::vector<const T*> starts;
    for (std::size_t r = 0; r < ranks; ++r) starts.push_back(inputs + r * count);
    return starts;
  }
};

TEST_F(SegmentSums, AreTheBitsOfTheHost) {
  auto* const stream = dynamic_cast<device::CudaDevice&>(*device_).stream();
  for (const std::size_t ranks : {2UL, 3UL, 8UL, 256UL}) {
    for (const std::size_t count : {1UL, 255UL, 257UL, 70'001UL}) {
      if (ranks * count > 1'000'000) continue;
      std::vector<double> values(ranks * count);
      Random random(ranks * count);
      std::vector<const std::byte*> bytes;
      for (std::size_t r = 0; r < ranks; ++r) {
        double* const own = values.data() + r * count;
        for (std::size_t i = 0; i < count; ++i) {
          own[i] = (random.uniform() - 0.5) * (i % 3 == r % 3 ? 1e17 : 1);
        }
        bytes.push_back(reinterpret_cast<const std::byte*>(own));
      }
      std::vector<float> expected(count);
      transport::sum_doubles_to_floats()(bytes, count,
                                         reinterpret_cast<std::byte*>(expected.data()));
      const device::Buffer inputs = to_device(values);
      const device::Buffer sums = device_->allocate(count * sizeof(float));
      const std::vector<const double*> doubles = starts_of(inputs.as<double>(), ranks, count);

      transport::nccl::sum_in_order(stream, doubles.data(), ranks, count, sums.as<float>());
      ASSERT_EQ(cudaPeekAtLastError(), cudaSuccess);
      ASSERT_TRUE(device_->synchronize());

      EXPECT_EQ(floats_of(sums), expected) << ranks << " replicas, " << count << " values";
    }
  }
}

TEST_F(SegmentSums, OfWeightedParametersAreTheBitsOfTheHost) {
  auto* const stream = dynamic_cast<device::CudaDevice&>(*device_).stream();
  ASSERT_EQ(transport::nccl::load_segment_kernels(), cudaSuccess);
  for (const std::size_t ranks : {2UL, 3UL, 8UL, 256UL}) {
    for (const std::size_t count : {1UL, 255UL, 257UL, 70'001UL}) {
      if (ranks * count > 1'000'000) continue;
      std::vector<float> values(ranks * count);
      Random random(ranks + count);
      std::vector<double> weights;
      std::vector<const std::byte*> bytes;
      for (std::size_t r = 0; r < ranks; ++r) {
        float* const own = values.data() + r * count;
        for (std::size_t i = 0; i < count; ++i) own[i] = static_cast<float>(random.uniform() - 0.5);
        weights.push_back(random.uniform() / static_cast<double>(ranks));
        bytes.push_back(reinterpret_cast<const std::byte*>(own));
      }
      std::vector<float> expected(count);
      transport::mean_of_floats(weights)(bytes, count,
                                         reinterpret_cast<std::byte*>(expected.data()));
      const device::Buffer inputs = to_device(values);
      const device::Buffer means = device_->allocate(count * sizeof(float));
      const std::vector<const float*> floats = starts_of(inputs.as<float>(), ranks, count);

      transport::nccl::mean_in_order(stream, floats.data(), weights.data(), ranks, count,
                                     means.as<float>());
      ASSERT_EQ(cudaPeekAtLastError(), cudaSuccess);
      ASSERT_TRUE(device_->synchronize());

      EXPECT_EQ(floats_of(means), expected) << ranks << " replicas, " << count << " values";
    }
  }
}

class Squares : public OnGpu {};

TEST_F(Squares, AreTheBitsOfTheHost) {
  auto kernels = kernels_of(*device_, stage::Precision::kFp32);
  ASSERT_TRUE(kernels) << kernels.error().message;
  constexpr std::size_t kChunk = stage::ops::kSquaresChunk;
  for (const std::size_t count :
       {0UL, 1UL, 257UL, kChunk, kChunk + 1, 70'001UL, 270 * kChunk + 5}) {
    Random random(count + 3);
    std::vector<float> values(count + 1);  // +1: no empty buffer
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>((random.uniform() - 0.5) * (i % 5 == 0 ? 1e8 : 1));
    }
    const device::Buffer on_device = to_device(values);
    const device::Buffer sum = to_device(std::vector<double>{-1});

    (*kernels)->run(stage::ops::SumSquares{count, on_device.as<float>(), sum.as<double>()});

    const auto staged = device_->download(sum);
    ASSERT_TRUE(staged) << staged.error().message;
    double expected = 0;
    test::run(stage::ops::SumSquares{count, values.data(), &expected});
    EXPECT_EQ(*staged->as<double>(), expected) << count << " values";

    std::vector<double> sums(values.begin(), values.end());
    for (double& one : sums) one *= 1 + 0x1p-30;  // rounds to the value
    const device::Buffer sums_on_device = to_device(sums);
    (*kernels)->run(stage::ops::SumSquares{count, sums_on_device.as<double>(), sum.as<double>()});
    const auto again = device_->download(sum);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again->as<double>(), expected) << count << " sums";
  }
}

}  // namespace sum_test
}  // namespace weir::test
