// SPDX-License-Identifier: Apache-2.0
// Codecs of tensors between stages on the device: the bytes and numbers of the host.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

#include "tests/gpu/gpu.h"
#include "tests/worker/stage/ops/numeric.h"
#include "tests/worker/stage/ops/random_block.h"
#include "worker/base/random.h"
#include "worker/stage/ops/kernels.h"

namespace weir::test {
namespace codec_test {

using stage::Precision;
using namespace stage::ops;

std::vector<float> numbers(std::size_t count) {
  Random random(count);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = std::ldexp(static_cast<float>(2 * random.uniform() - 1),
                           static_cast<int>(random.below(30)) - 15);
  }
  values[0] = std::nanf("");
  if (count > 100) values[70] = 0x1p-110F, values[99] = INFINITY;
  return values;
}

class Codecs : public OnGpu {};

TEST_F(Codecs, GiveTheBytesOfTheHost) {
  auto kernels = kernels_of(*device_, Precision::kFp32);
  ASSERT_TRUE(kernels) << kernels.error().message;
  for (const int bits : {16, 8, 6}) {
    for (const auto& [samples, count] : {std::pair{1, 1}, {3, 45}, {5, 1024}, {2, 70'001}}) {
      const CodecShape shape{.bits = bits, .samples = samples, .count = count};
      const std::vector<float> values =
          numbers(static_cast<std::size_t>(samples) * static_cast<std::size_t>(count));
      const std::size_t bytes = static_cast<std::size_t>(samples) * encoded_sample_bytes(shape);
      std::vector<unsigned char> expected(bytes);
      test::run(EncodeBlocks{shape, elements(values.data()), expected.data()});
      std::vector<float> expected_values(values.size());
      test::run(DecodeBlocks{shape, expected.data(), elements(expected_values.data())});
      double expected_sums[4] = {0, 0, 0, 0};
      constexpr int kFirst = 1;  // there are shapes of one block
      test::run(
          SampleCodecError{shape, elements(values.data()), expected.data(), expected_sums, kFirst});

      const device::Buffer in = to_device(values), codes = device_->allocate(bytes);
      const device::Buffer out = device_->allocate(values.size() * sizeof(float));
      const device::Buffer sums = to_device(std::vector<double>(4, 0.0));
      (*kernels)->run(EncodeBlocks{shape, in.as<Element>(), codes.as<unsigned char>()});
      (*kernels)->run(DecodeBlocks{shape, codes.as<unsigned char>(), out.as<Element>()});
      (*kernels)->run(SampleCodecError{shape, in.as<Element>(), codes.as<unsigned char>(),
                                       sums.as<double>(), kFirst});

      const auto staged = device_->download(codes);
      ASSERT_TRUE(staged) << staged.error().message;
      const auto* const got = staged->as<unsigned char>();
      EXPECT_EQ(std::vector<unsigned char>(got, got + bytes), expected)
          << bits << " bits, " << samples << " x " << count;
      const std::vector<float> back = floats_of(out);
      for (std::size_t i = 0; i < back.size(); ++i) {
        ASSERT_TRUE(back[i] == expected_values[i] ||
                    (std::isnan(back[i]) && std::isnan(expected_values[i])))
            << bits << " bits, number " << i;
      }
      const auto told = device_->download(sums);
      ASSERT_TRUE(told) << told.error().message;
      for (int i = 0; i < 4; ++i) {
        const double sum = told->as<double>()[i];
        EXPECT_TRUE(std::abs(sum - expected_sums[i]) <= 1e-9 * std::abs(expected_sums[i]) ||
                    (std::isnan(sum) && std::isnan(expected_sums[i])) || sum == expected_sums[i])
            << bits << " bits: " << sum << " instead of " << expected_sums[i];
      }
    }
  }
}

// The blocks that the kernels of the host are tested with: the same bytes, and the same numbers
// back. WEIR_CODEC_BLOCKS=10000000 tests so many: minutes on a GPU, hours in the emulator.
TEST_F(Codecs, GiveTheBytesOfTheHostForRandomBlocks) {
  auto kernels = kernels_of(*device_, Precision::kFp32);
  ASSERT_TRUE(kernels) << kernels.error().message;
  constexpr int kTogether = 2'000;
  const char* const blocks = std::getenv("WEIR_CODEC_BLOCKS");
  const int rounds = blocks != nullptr ? std::atoi(blocks) / kTogether : 1;
  ASSERT_GT(rounds, 0) << "WEIR_CODEC_BLOCKS=" << blocks;
  Random random(10);
  for (int round = 0; round < rounds; ++round) {
    std::vector<float> values;
    values.reserve(std::size_t{kTogether} * kCodecBlock);
    for (int i = 0; i < kTogether; ++i) {
      const std::vector<float> block = random_block(random, kCodecBlock);
      values.insert(values.end(), block.begin(), block.end());
    }
    const device::Buffer in = to_device(values);
    for (const int bits : {8, 6}) {
      const CodecShape shape{.bits = bits, .samples = kTogether, .count = kCodecBlock};
      const std::size_t sample = encoded_sample_bytes(shape), bytes = kTogether * sample;
      std::vector<unsigned char> expected(bytes);
      test::run(EncodeBlocks{shape, elements(values.data()), expected.data()});
      std::vector<float> expected_values(values.size());
      test::run(DecodeBlocks{shape, expected.data(), elements(expected_values.data())});

      const device::Buffer codes = device_->allocate(bytes);
      const device::Buffer out = device_->allocate(values.size() * sizeof(float));
      (*kernels)->run(EncodeBlocks{shape, in.as<Element>(), codes.as<unsigned char>()});
      (*kernels)->run(DecodeBlocks{shape, codes.as<unsigned char>(), out.as<Element>()});
      const auto staged = device_->download(codes);
      ASSERT_TRUE(staged) << staged.error().message;
      const auto* const got = staged->as<unsigned char>();
      const auto wrong = std::mismatch(expected.begin(), expected.end(), got).first;
      ASSERT_TRUE(wrong == expected.end())
          << bits << " bits, round " << round << ", block "
          << static_cast<std::size_t>(wrong - expected.begin()) / sample;
      const std::vector<float> back = floats_of(out);
      const auto other = std::mismatch(
          back.begin(), back.end(), expected_values.begin(),
          [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); });
      ASSERT_TRUE(other.first == back.end()) << bits << " bits, round " << round << ", block "
                                             << (other.first - back.begin()) / kCodecBlock;
    }
  }
}

}  // namespace codec_test
}  // namespace weir::test
