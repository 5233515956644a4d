// SPDX-License-Identifier: Apache-2.0
// bf16 on the host: rounding to nearest even, and every operation is its float one on what the
// operands hold, rounded once when it is stored.
#include "worker/stage/ops/bf16.h"

#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/stage/ops/op_cases.h"

namespace weir::stage::ops {
namespace bf16_test {

std::uint16_t bits_of(float value) {
  return rounded<Bf16>(value).bits;
}

TEST(Bf16, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(bits_of(1.0F), 0x3f80);
  EXPECT_EQ(bits_of(1 + 0x1p-8F), 0x3f80) << "half way up to an odd one";
  EXPECT_EQ(bits_of(1 + 0x1p-8F + 0x1p-20F), 0x3f81);
  EXPECT_EQ(bits_of(1 + 0x1.8p-7F), 0x3f82) << "half way from an odd one";
  EXPECT_EQ(bits_of(-(1 + 0x1.8p-7F)), 0xbf82);
  EXPECT_EQ(bits_of(2 - 0x1p-9F), 0x4000) << "carries into the exponent";
  EXPECT_EQ(bits_of(0x1p-133F), 0x0001) << "the smallest";
  EXPECT_EQ(bits_of(-0.0F), 0x8000);
}

TEST(Bf16, KeepsInfinityAndNan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(bits_of(kInfinity), 0x7f80);
  EXPECT_EQ(bits_of(-kInfinity), 0xff80);
  EXPECT_EQ(bits_of(std::numeric_limits<float>::max()), 0x7f80) << "above the largest";
  const float quiet = std::bit_cast<float>(0x7fc00001U), low = std::bit_cast<float>(0x7f800001U);
  EXPECT_TRUE(std::isnan(widened(rounded<Bf16>(quiet))));
  EXPECT_TRUE(std::isnan(widened(rounded<Bf16>(low)))) << "its payload is in the lost half";
}

TEST(Bf16, ComesBackFromFloatAsItWas) {
  std::vector<Bf16> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> wide(all.size());
  std::vector<Bf16> back(all.size());
  widen(all.size(), all.data(), wide.data());
  round(wide.size(), wide.data(), back.data());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(wide[i])) continue;
    ASSERT_EQ(back[i].bits, i);
  }
}

// Where the operands of a case lie, for one run of it.
struct Trial {
  Trial(const test::OpCase& of, Precision precision) : tested(of), scratch(of.scratch) {
    for (const test::OpArray& array : of.arrays) {
      std::vector<Bf16> rounded(array.values.size());
      round(rounded.size(), array.values.data(), rounded.data());
      wide.push_back(array.values);
      if (array.elements) widen(rounded.size(), rounded.data(), wide.back().data());
      narrow.push_back(std::move(rounded));
    }
    test::OpMemory memory{.tokens = of.tokens.data(), .scratch = scratch.data(), .result = &result};
    for (std::size_t a = 0; a < wide.size(); ++a) {
      const bool is_narrow = precision == Precision::kBf16 && of.arrays[a].elements;
      memory.arrays.push_back(is_narrow ? static_cast<void*>(narrow[a].data()) : wide[a].data());
    }
    of.calls(*make_host_kernels(precision), memory);
  }

  const test::OpCase& tested;
  std::vector<std::vector<float>> wide;
  std::vector<std::vector<Bf16>> narrow;
  std::vector<float> scratch;
  double result = 0;
};

class HostBf16 : public ::testing::TestWithParam<test::OpCase> {};

TEST_P(HostBf16, IsFloatArithmeticRoundedOnce) {
  const Trial actual(GetParam(), Precision::kBf16), expected(GetParam(), Precision::kFp32);

  EXPECT_EQ(actual.result, expected.result);
  for (std::size_t a = 0; a < expected.wide.size(); ++a) {
    if (!GetParam().arrays[a].elements) {
      EXPECT_EQ(actual.wide[a], expected.wide[a]) << "array " << a;
      continue;
    }
    for (std::size_t i = 0; i < expected.wide[a].size(); ++i) {
      ASSERT_EQ(actual.narrow[a][i].bits, bits_of(expected.wide[a][i]))
          << "array " << a << ", element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, HostBf16, ::testing::ValuesIn(test::op_cases()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace bf16_test
}  // namespace weir::stage::ops
