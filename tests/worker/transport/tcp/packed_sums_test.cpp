// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/packed_sums.h"

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "worker/base/random.h"

namespace weir::transport::tcp {
namespace packed_sums_test {

using namespace std::chrono_literals;

constexpr double kUnit = 0x1p-44;

double multiple(double value) {
  return std::nearbyint(value / kUnit) * kUnit;
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b, {}, std::bit_cast<std::uint64_t, double>,
                            std::bit_cast<std::uint64_t, double>);
}

std::vector<std::byte> packed_of(const std::vector<double>& sums) {
  std::vector<std::byte> room(packing_room(sums.size()));
  room.resize(pack_sums(sums, room));
  return room;
}

// What comes out of `packed`, for as many values as `like` has.
std::vector<double> unpacked(const std::vector<std::byte>& packed,
                             const std::vector<double>& like) {
  std::vector<double> result(like.size(), -1);
  const Status done = unpack_sums(packed, result);
  EXPECT_TRUE(done) << (done ? "" : done.error().message);
  return result;
}

TEST(PackedSums, TakeAsManyBytesAsTheLargestOfABlockNeeds) {
  std::vector<double> sums(3 * kPackedBlock);
  sums[5] = 127 * kUnit;
  sums[kPackedBlock + 3] = -129 * kUnit;
  const auto packed = packed_of(sums);
  EXPECT_EQ(packed.size(), 3 + kPackedBlock * (1 + 2 + 0));
  EXPECT_TRUE(same_bits(unpacked(packed, sums), sums));
  sums[5] = -128 * kUnit;
  EXPECT_EQ(packed_of(sums).size(), packed.size());
  sums[5] = 128 * kUnit;
  EXPECT_EQ(packed_of(sums).size(), packed.size() + kPackedBlock);
}

TEST(PackedSums, OfGradientsAreALittleMoreThanHalf) {
  Random random(1);
  std::vector<double> sums(100'000);
  for (double& sum : sums) sum = multiple(5e-4 * random.normal());
  const auto packed = packed_of(sums);
  EXPECT_NEAR(static_cast<double>(packed.size()) / static_cast<double>(sums.size()), 5.0, 0.1);
  EXPECT_TRUE(same_bits(unpacked(packed, sums), sums));
}

// Ordinary ones, and what no gradient should be.
TEST(PackedSums, ComeOutWithTheirBits) {
  const std::vector<double> odd = {-0.0,
                                   0.0,
                                   kUnit,
                                   -kUnit,
                                   kUnit / 2,
                                   0x1p11,
                                   -0x1p11,
                                   0x1p11 - 0x1p-42,
                                   1e300,
                                   -1e300,
                                   5e-324,
                                   std::nan("1"),
                                   -std::numeric_limits<double>::quiet_NaN(),
                                   std::numeric_limits<double>::infinity(),
                                   -std::numeric_limits<double>::infinity()};
  const int rounds = std::getenv("WEIR_FULL") != nullptr ? 20'000 : 400;
  Random random(2);
  for (int round = 0; round < rounds; ++round) {
    std::vector<double> sums(static_cast<std::size_t>(1 + random.uniform() * 700));
    const double size = std::exp2(60 * random.uniform() - 44);
    for (double& sum : sums) sum = random.uniform() < 0.1 ? 0 : multiple(size * random.normal());
    for (double& sum : sums) {
      if (round % 3 == 0 && random.uniform() < 0.01) {
        sum = odd[static_cast<std::size_t>(random.uniform() * static_cast<double>(odd.size()))];
      }
    }
    const auto packed = packed_of(sums);
    if (packed.empty()) continue;
    ASSERT_LT(packed.size(), sums.size() * sizeof(double));
    ASSERT_TRUE(same_bits(unpacked(packed, sums), sums)) << round;
  }
  for (const double one : odd) {
    std::vector<double> sums(2 * kPackedBlock);
    sums[9] = one;
    EXPECT_TRUE(same_bits(unpacked(packed_of(sums), sums), sums)) << one;
  }
}

TEST(PackedSums, AreNotMadeWhereTheyWouldNotBeShorter) {
  EXPECT_TRUE(packed_of({}).empty());
  EXPECT_TRUE(packed_of(std::vector<double>(300, 1e300)).empty());
  EXPECT_FALSE(packed_of(std::vector<double>(1)).empty());
}

TEST(PackedSums, ThatAreDamagedAreRefused) {
  std::vector<double> sums(kPackedBlock + 10, 3 * kUnit);
  const auto packed = packed_of(sums);
  const auto refused = [&](std::vector<std::byte> bytes) {
    const Status done = unpack_sums(bytes, sums);
    return !done && done.error().code == Code::kInvalid &&
           done.error().message == "packed sums: the length of a block is impossible";
  };
  for (std::size_t length = 0; length < packed.size(); ++length) {
    EXPECT_TRUE(refused({packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(length)}));
  }
  auto wrong = packed;
  wrong.push_back(std::byte{0});
  EXPECT_TRUE(refused(wrong));
  for (const int width : {0, 2, 8, 9, 255}) {
    wrong = packed;
    wrong[0] = static_cast<std::byte>(width);
    EXPECT_TRUE(refused(wrong)) << width;
  }
}

TEST(PackingRule, PacksWhileTheNetworkIsSlow) {
  PackingRule rule(SumEncoding::kAuto);
  EXPECT_FALSE(rule.packs());
  rule.measured(1000, 1s);  // too few bytes tell nothing
  EXPECT_FALSE(rule.packs());
  rule.measured(10'000'000, 1s);
  EXPECT_TRUE(rule.packs());
  rule.measured(280'000'000, 1s);  // within the hysteresis
  EXPECT_TRUE(rule.packs());
  rule.measured(310'000'000, 1s);
  EXPECT_FALSE(rule.packs());
  rule.measured(220'000'000, 1s);
  EXPECT_FALSE(rule.packs());

  PackingRule raw(SumEncoding::kRaw), packed(SumEncoding::kPacked);
  for (PackingRule* one : {&raw, &packed}) one->measured(10'000'000, 1s);
  EXPECT_FALSE(raw.packs());
  EXPECT_TRUE(packed.packs());
}

}  // namespace packed_sums_test
}  // namespace weir::transport::tcp
