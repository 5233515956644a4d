// SPDX-License-Identifier: Apache-2.0
#include "worker/stage/ops/block_codec.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/stage/ops/numeric.h"
#include "tests/worker/stage/ops/random_block.h"
#include "worker/base/random.h"
#include "worker/stage/ops/bf16.h"
#include "worker/stage/ops/kernels.h"

namespace weir::stage::ops {
namespace block_codec_test {

using Bytes = std::vector<unsigned char>;
constexpr int kBlockCodecs[] = {8, 6};
constexpr std::size_t kBlock = kCodecBlock;

std::size_t numbers_of(const CodecShape& s) {
  return static_cast<std::size_t>(s.samples) * static_cast<std::size_t>(s.count);
}

Bytes encoded(const CodecShape& shape, const std::vector<float>& values) {
  Bytes bytes(static_cast<std::size_t>(shape.samples) * encoded_sample_bytes(shape), 0xaa);
  test::run(EncodeBlocks{shape, test::elements(values.data()), bytes.data()});
  return bytes;
}
std::vector<float> decoded(const CodecShape& shape, const Bytes& bytes) {
  std::vector<float> values(numbers_of(shape), -1);
  test::run(DecodeBlocks{shape, bytes.data(), test::elements(values.data())});
  return values;
}
CodecShape one_sample(int bits, std::size_t count) {
  return {.bits = bits, .samples = 1, .count = static_cast<int>(count)};
}
std::vector<float> through(int bits, const std::vector<float>& values) {
  const CodecShape shape = one_sample(bits, values.size());
  return decoded(shape, encoded(shape, values));
}

// The rule as it is written in the header, in double.
std::vector<float> expected_block(int bits, const std::vector<float>& block) {
  double largest = 0;
  bool finite = true;
  for (const float x : block) {
    finite = finite && std::isfinite(x);
    largest = std::max(largest, std::abs(double{x}));
  }
  const double m = std::exp2(bits - 1) - 1;
  if (!finite || largest > m * std::exp2(bits == 8 ? 120 : 122))
    return std::vector<float>(block.size(), std::nanf(""));
  if (largest < 0x1p-100) return std::vector<float>(block.size(), 0.0F);
  int e = -200;
  while (largest > m * std::exp2(e)) ++e;
  std::vector<float> result;
  for (const float x : block) {
    const double q = std::nearbyint(x * std::exp2(-e));
    EXPECT_LE(std::abs(q), m);
    result.push_back(static_cast<float>(q * std::exp2(e)));
  }
  return result;
}

// Ten million blocks in the long form, over all tests.
int rounds() {
  return std::getenv("WEIR_FULL") != nullptr ? 5'000'000 : 20'000;
}

bool same_numbers(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || a == b;
}

TEST(BlockCodec, FollowsTheRule) {
  Random random(5);
  for (int i = 0, count = rounds(); i < count; ++i) {
    const std::size_t size = i % 7 == 0 ? 1 + random.below(kBlock) : kBlock;
    const std::vector<float> block = test::random_block(random, size);
    for (const int bits : kBlockCodecs) {
      const std::vector<float> got = through(bits, block), want = expected_block(bits, block);
      for (std::size_t n = 0; n < size; ++n) {
        ASSERT_TRUE(same_numbers(got[n], want[n]))
            << bits << " bits, block " << i << ", number " << n << ": " << block[n] << " became "
            << got[n] << " instead of " << want[n];
      }
    }
  }
}

TEST(BlockCodec, GivesTheSameBytesForWhatItDecoded) {
  Random random(6);
  for (int i = 0, count = rounds(); i < count; ++i) {
    const std::vector<float> block = test::random_block(random, kBlock);
    for (const int bits : kBlockCodecs) {
      const CodecShape shape = one_sample(bits, kBlock);
      const Bytes once = encoded(shape, block);
      ASSERT_EQ(encoded(shape, decoded(shape, once)), once) << bits << " bits, block " << i;
    }
  }
}

TEST(BlockCodec, KeepsBlocksWithinTheirSamples) {
  for (const int bits : kBlockCodecs) {
    const CodecShape shape{.bits = bits, .samples = 3, .count = 40};
    std::vector<float> values(numbers_of(shape), 0.5F);
    values[39] = 1e20F;  // the last number of the first sample
    const std::vector<float> got = decoded(shape, encoded(shape, values));
    for (std::size_t i = 40; i < got.size(); ++i) EXPECT_EQ(got[i], 0.5F) << i;
    EXPECT_EQ(got[33], 0) << "beside a number that is so much larger";
    EXPECT_EQ(encoded_sample_bytes(shape), 2 * (bits == 8 ? 33U : 25U));
  }
}

// Bit for bit what the specification of MX formats says of such a block: scale 2^(byte-127), codes
// are multiples of 2^-6.
TEST(BlockCodec, WritesBlocksOfMxint8) {
  std::vector<float> block(kBlock, 0.0F);
  block[0] = 1.0F, block[1] = -0.25F, block[2] = 1.984375F;
  const Bytes bytes = encoded(one_sample(8, kBlock), block);
  EXPECT_EQ(bytes[0], 127);
  EXPECT_EQ(bytes[1], 64);
  EXPECT_EQ(static_cast<signed char>(bytes[2]), -16);
  EXPECT_EQ(bytes[3], 127);
}

TEST(BlockCodec, LetsBadNumbersBeSeen) {
  for (const int bits : kBlockCodecs) {
    for (const float bad : {std::nanf(""), INFINITY, -INFINITY, 0x1p127F}) {
      std::vector<float> values(2 * kBlock, 1.0F);
      values[3] = bad;
      const std::vector<float> got = through(bits, values);
      EXPECT_TRUE(std::isnan(got[0]) && std::isnan(got[3]) && std::isnan(got[31])) << bad;
      EXPECT_EQ(got[kBlock], 1.0F);
    }
  }
}

// Bytes of a peer are not trusted: any of them decode to something.
TEST(BlockCodec, DecodesAnyBytes) {
  Random random(7);
  for (int i = 0; i < 2000; ++i) {
    for (const int bits : kBlockCodecs) {
      const CodecShape shape = one_sample(bits, 45);
      Bytes bytes(encoded_sample_bytes(shape));
      for (unsigned char& b : bytes) b = static_cast<unsigned char>(random.below(256));
      EXPECT_EQ(decoded(shape, bytes).size(), 45);
    }
  }
}

TEST(BlockCodec, RoundsFloatsToBfloat16With16Bits) {
  std::vector<float> values{1.0F, 1.00390625F, -3e38F, 1e-30F, 0.1F};
  const std::vector<float> got = through(16, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(got[i], widened(rounded<Bf16>(values[i])));
  }
}

// Kernels in bf16 give what those in float32 give for the same numbers: they are exact in both.
TEST(BlockCodec, GivesTheSameBytesInBothPrecisionsWithAnyThreads) {
  Random random(8);
  for (const int bits : kBlockCodecs) {
    const CodecShape shape{.bits = bits, .samples = 5, .count = 1000};
    std::vector<Bf16> narrow(numbers_of(shape));
    std::vector<float> wide;
    for (Bf16& x : narrow) {
      x = rounded<Bf16>(static_cast<float>(2 * random.uniform() - 1));
      wide.push_back(widened(x));
    }
    const Bytes expected = encoded(shape, wide);
    const std::vector<float> values = decoded(shape, expected);
    for (const int threads : {1, 3}) {
      const auto kernels = make_host_kernels(Precision::kBf16, threads, 64);
      Bytes bytes(expected.size());
      kernels->run(
          EncodeBlocks{shape, reinterpret_cast<const Element*>(narrow.data()), bytes.data()});
      EXPECT_EQ(bytes, expected);
      std::vector<Bf16> back(narrow.size());
      kernels->run(DecodeBlocks{shape, bytes.data(), reinterpret_cast<Element*>(back.data())});
      for (std::size_t i = 0; i < back.size(); ++i) ASSERT_EQ(widened(back[i]), values[i]);
    }
  }
}

TEST(BlockCodec, SamplesItsErrors) {
  for (const int bits : kBlockCodecs) {
    const CodecShape shape{.bits = bits, .samples = 4, .count = 4096};
    std::vector<float> values(numbers_of(shape));
    Random random(9);
    for (float& x : values) x = static_cast<float>(2 * random.uniform() - 1);
    values[5] = 1e6F;  // owns the first block, which is looked at
    const Bytes bytes = encoded(shape, values);
    const std::vector<float> got = decoded(shape, bytes);
    double sums[4] = {1, 1, 1, 1};
    test::run(SampleCodecError{shape, test::elements(values.data()), bytes.data(), sums});

    double want[4] = {1, 1, 1, 1};
    for (std::size_t b = 0; b < values.size() / kBlock; b += kCodecSampling) {
      for (std::size_t i = b * kBlock; i < (b + 1) * kBlock; ++i) {
        const double x = values[i], error = got[i] - x;
        want[0] += error * error, want[1] += x * x;
        want[2] += got[i] == 0 ? 1 : 0, want[3] += 1;
      }
    }
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(sums[i], want[i], 1e-9 * want[i]) << i;
    EXPECT_GE(sums[2], 31) << "all but the large one";
  }
}

TEST(BlockCodec, SamplesAllColumnsOfTensorsWhoseWidthIsAPowerOfTwo) {
  constexpr int kTokens = 64, kBlocks = 64;  // of a token: its width is 2048
  const CodecShape shape{.bits = 8, .samples = 1, .count = kTokens * kBlocks * kCodecBlock};
  for (const std::size_t column : {0U, 37U, 63U}) {
    std::vector<float> values(numbers_of(shape), 0.5F);
    for (std::size_t token = 0; token < kTokens; ++token) {
      values[(token * kBlocks + column) * kBlock] = 1000;  // owns its block
    }
    const Bytes bytes = encoded(shape, values);
    double sums[4] = {0, 0, 0, 0};
    test::run(SampleCodecError{shape, test::elements(values.data()), bytes.data(), sums});
    EXPECT_GE(sums[2], 31) << column;
  }
}

TEST(BlockCodec, SamplesFromTheBlockThatIsNamed) {
  const CodecShape shape{.bits = 8, .samples = 1, .count = 2 * kCodecSampling * kCodecBlock};
  std::vector<float> values(numbers_of(shape), 0.5F);
  values[(kCodecSampling + 7) * kBlock] = 1000;
  const Bytes bytes = encoded(shape, values);
  for (const int first : {0, 7, kCodecSampling - 1}) {
    double sums[4] = {0, 0, 0, 0};
    test::run(SampleCodecError{shape, test::elements(values.data()), bytes.data(), sums, first});
    EXPECT_EQ(sums[2], first == 7 ? 31 : 0) << first;
    EXPECT_EQ(sums[3], 64) << first;
  }
}

}  // namespace block_codec_test
}  // namespace weir::stage::ops
