// SPDX-License-Identifier: Apache-2.0
// Each CUDA operation against its host reference, in both precisions. Sums run in another order, so
// the tolerance is their rounding, by the largest element of an array: 2e-5 in float32, in bf16 one
// unit in the last place of what is stored, because a sum next to a tie may fall to either side.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <tuple>

#include "tests/gpu/gpu.h"
#include "tests/worker/stage/ops/op_cases.h"
#include "worker/stage/ops/bf16.h"

namespace weir::test {
namespace ops_test {

using namespace stage::ops;
using stage::Precision;

double tolerance_of(Precision precision) {
  return precision == Precision::kBf16 ? 0x1p-7 : 2e-5;
}

// The bytes of an array for kernels of a precision, and what bytes hold.
std::vector<std::byte> bytes_of(const OpArray& array, Precision precision) {
  const bool narrow = array.elements && precision == Precision::kBf16;
  std::vector<std::byte> bytes(array.values.size() * (narrow ? sizeof(Bf16) : sizeof(float)));
  if (narrow) {
    round(array.values.size(), array.values.data(), reinterpret_cast<Bf16*>(bytes.data()));
  } else {
    std::memcpy(bytes.data(), array.values.data(), bytes.size());
  }
  return bytes;
}
std::vector<float> values_of(const std::byte* bytes, const OpArray& array, Precision precision) {
  std::vector<float> values(array.values.size());
  if (array.elements && precision == Precision::kBf16) {
    widen(values.size(), reinterpret_cast<const Bf16*>(bytes), values.data());
  } else {
    std::memcpy(values.data(), bytes, values.size() * sizeof(float));
  }
  return values;
}

class Twins : public OnGpu, public testing::WithParamInterface<std::tuple<OpCase, Precision>> {};

TEST_P(Twins, GiveWhatTheHostGives) {
  const auto& [tested, precision] = GetParam();
  auto kernels = kernels_of(*device_, precision);
  ASSERT_TRUE(kernels) << kernels.error().message;
  std::vector<float> scratch(tested.scratch);
  double host_result = 0;
  const device::Buffer device_result = device_->allocate_staging(sizeof(double));
  *device_result.as<double>() = 0;
  OpMemory host{.tokens = tested.tokens.data(), .scratch = scratch.data(), .result = &host_result};
  OpMemory device = host;
  const device::Buffer device_tokens = to_device(tested.tokens);
  device.tokens = device_tokens.as<std::int32_t>();
  device.result = device_result.as<double>();
  std::vector<std::vector<std::byte>> host_arrays;
  std::vector<device::Buffer> device_arrays;
  for (const OpArray& array : tested.arrays) {
    host_arrays.push_back(bytes_of(array, precision));
    device_arrays.push_back(to_device(host_arrays.back()));
    host.arrays.push_back(host_arrays.back().data());
    device.arrays.push_back(device_arrays.back().data());
  }

  tested.calls(*make_host_kernels(precision), host);
  tested.calls(**kernels, device);

  ASSERT_TRUE((*kernels)->status()) << (*kernels)->status().error().message;
  ASSERT_TRUE(device_->synchronize());
  EXPECT_NEAR(*device_result.as<double>(), host_result, 1e-5 * std::abs(host_result));
  float worst = 0;  // of all elements, by the largest of their array: for tests/gpu/report
  for (std::size_t a = 0; a < tested.arrays.size(); ++a) {
    auto staged = device_->download(device_arrays[a]);
    ASSERT_TRUE(staged) << staged.error().message;
    const auto expected = values_of(host_arrays[a].data(), tested.arrays[a], precision);
    const auto actual = values_of(staged->data(), tested.arrays[a], precision);
    // Operands are around 1: what cancels out in a small result is of their size.
    float most = 0.05F;
    for (const float value : expected) most = std::max(most, std::abs(value));
    for (std::size_t i = 0; i < actual.size(); ++i) {
      worst = std::max(worst, std::abs(actual[i] - expected[i]) / most);
      ASSERT_NEAR(actual[i], expected[i], tolerance_of(precision) * most)
          << "array " << a << ", element " << i;
    }
  }
  RecordProperty("worst_error", std::to_string(worst * 1e6) + "e-6");
}

// Arrays within a buffer need not begin where the widest loads may.
class Unaligned : public OnGpu, public testing::WithParamInterface<Precision> {};

TEST_P(Unaligned, ActivationsAreTheSame) {
  constexpr std::size_t kCount = 300;
  auto kernels = kernels_of(*device_, GetParam());
  ASSERT_TRUE(kernels) << kernels.error().message;
  OpArray array{.values = std::vector<float>(kCount + 1), .elements = true};
  for (std::size_t i = 0; i <= kCount; ++i) array.values[i] = 0.02F * static_cast<float>(i) - 3;
  const auto bytes = bytes_of(array, GetParam());
  const std::size_t element = bytes.size() / (kCount + 1);
  const device::Buffer x = to_device(bytes), y = to_device(bytes), aligned = to_device(bytes);
  const auto at = [](const device::Buffer& buffer, std::size_t offset) {
    return reinterpret_cast<Element*>(buffer.as<std::byte>() + offset);
  };

  (*kernels)->run(GeluForward{kCount, at(x, element), at(y, element)});
  (*kernels)->run(GeluForward{kCount + 1, at(x, 0), at(aligned, 0)});

  const auto one = device_->download(y), other = device_->download(aligned);
  ASSERT_TRUE(one && other);
  EXPECT_EQ(std::memcmp(one->data() + element, other->data() + element, kCount * element), 0);
  EXPECT_EQ(std::memcmp(one->data(), bytes.data(), element), 0) << "what lies before";
}

INSTANTIATE_TEST_SUITE_P(Ops, Unaligned, testing::Values(Precision::kFp32, Precision::kBf16),
                         [](const auto& tested) {
                           return tested.param == Precision::kBf16 ? "Bf16" : "Fp32";
                         });

INSTANTIATE_TEST_SUITE_P(Ops, Twins,
                         testing::Combine(testing::ValuesIn(op_cases()),
                                          testing::Values(Precision::kFp32, Precision::kBf16)),
                         [](const auto& tested) {
                           const bool bf16 = std::get<1>(tested.param) == Precision::kBf16;
                           return std::get<0>(tested.param).name + (bf16 ? "Bf16" : "Fp32");
                         });

}  // namespace ops_test
}  // namespace weir::test
