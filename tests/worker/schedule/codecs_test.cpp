// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/codecs.h"

#include <gtest/gtest.h>

#include "worker/schedule/plan.h"

namespace weir::schedule {
namespace codecs_test {

constexpr int kFloat = 4, kHalf = 2;

TEST(Codecs, TellBytesOfASample) {
  EXPECT_EQ(encoded_bytes(Codec::kRaw, 100, kFloat), 400);
  EXPECT_EQ(encoded_bytes(Codec::kRaw, 100, kHalf), 200);
  EXPECT_EQ(encoded_bytes(Codec::kBf16, 100, kFloat), 200);
  EXPECT_EQ(encoded_bytes(Codec::kInt8, 96, kFloat), 3 * 33);
  EXPECT_EQ(encoded_bytes(Codec::kInt8, 97, kHalf), 4 * 33) << "a whole block for the last number";
  EXPECT_EQ(encoded_bytes(Codec::kInt6, 96, kHalf), 3 * 25);
  EXPECT_EQ(encoded_bytes(Codec::kInt6, 0, kFloat), 0);
  EXPECT_EQ(wire_bytes(Codec::kInt8, 2 * 40 * kFloat, 2, kFloat), 2 * 2 * 33) << "by sample";
  EXPECT_EQ(wire_bytes(Codec::kRaw, 321, 2, kFloat), 321);
  EXPECT_DOUBLE_EQ(bits_of(Codec::kRaw, kHalf), 16);
  EXPECT_DOUBLE_EQ(bits_of(Codec::kInt8, kFloat), 8.25);
  EXPECT_DOUBLE_EQ(bits_of(Codec::kInt6, kFloat), 6.25);
}

// Two ends of a link that disagree fail by the size of the first message.
TEST(Codecs, DifferInSizeFrom64NumbersOn) {
  for (std::int64_t count = 64; count < 1000; ++count) {
    for (const int number_bytes : {kFloat, kHalf}) {
      std::int64_t finer = encoded_bytes(Codec::kRaw, count, number_bytes);
      for (const Codec codec : {Codec::kBf16, Codec::kInt8, Codec::kInt6}) {
        if (codec == Codec::kBf16 && number_bytes == kHalf) continue;
        const std::int64_t bytes = encoded_bytes(codec, count, number_bytes);
        EXPECT_LT(bytes, finer) << name(codec) << " of " << count;
        finer = bytes;
      }
    }
  }
}

TEST(Codecs, AreRawUnlessNamed) {
  EXPECT_TRUE(Codecs{}.raw());
  EXPECT_TRUE((Codecs{{Codec::kRaw}, {Codec::kRaw}}.raw()));
  EXPECT_FALSE((Codecs{{Codec::kRaw}, {Codec::kInt8}}.raw()));
  EXPECT_EQ(codec_of({}, 3), Codec::kRaw);
  EXPECT_EQ(codec_of({Codec::kRaw, Codec::kInt6}, 1), Codec::kInt6);
  EXPECT_EQ(codec_of({Codec::kInt6}, -1), Codec::kRaw) << "before the first stage";
}

TEST(Codecs, AreDescribedWhereTheyAreNotRaw) {
  EXPECT_EQ(describe(Codecs{}), "");
  EXPECT_EQ(describe(Codecs{{Codec::kRaw, Codec::kInt8}, {Codec::kRaw, Codec::kRaw}}),
            "1-2:Int8/Raw");
  EXPECT_EQ(describe(Codecs{{Codec::kBf16, Codec::kInt8}, {Codec::kBf16, Codec::kInt8}}),
            "0-1:BF16, 1-2:Int8");
}

TEST(Codecs, ChangeWithinAGeneration) {
  Plan before;
  before.stages = {{0, 0}, {1, 1}};
  Plan after = before;
  after.trigger = Trigger::kCompress;
  after.codecs = {{Codec::kInt8}, {Codec::kInt8}};
  EXPECT_FALSE(starts_generation(&before, after, 0));
  EXPECT_TRUE(starts_generation(&before, after, 1));
}

}  // namespace codecs_test
}  // namespace weir::schedule
