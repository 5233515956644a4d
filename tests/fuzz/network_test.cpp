// SPDX-License-Identifier: Apache-2.0
// What peers send on links: frames with sound checksums, packed sums, encoded tensors, and plans
// with codecs, damaged. Ten million inputs with WEIR_FULL=1.
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fuzz/damage.h"
#include "tests/worker/stage/ops/numeric.h"
#include "worker/base/digest.h"
#include "worker/base/random.h"
#include "worker/protocol/codec.h"
#include "worker/schedule/validate.h"
#include "worker/stage/ops/block_codec.h"
#include "worker/transport/tcp/frame.h"
#include "worker/transport/tcp/packed_sums.h"
#include "worker/wire/little_endian.h"

namespace weir::fuzz {
namespace network_test {

namespace tcp = transport::tcp;
namespace ops = stage::ops;

// Inputs of one kind; `full` in the long form.
int inputs(int full) {
  constexpr int kLess = 250;
  return std::getenv("WEIR_FULL") != nullptr ? full : full / kLess;
}

std::byte random_byte(Random& random) {
  return static_cast<std::byte>(random.below(256));
}

// A frame that is accepted is one that a peer can have written.
TEST(FuzzNetwork, FramesWithSoundChecksumsAreWhatTheySay) {
  Random random(1);
  int accepted = 0;
  for (int i = 0, count = inputs(4'000'000); i < count; ++i) {
    tcp::FrameHeader header{.type = i % 2 == 0 ? tcp::FrameType::kPart : tcp::FrameType::kData,
                            .incarnation = static_cast<std::uint16_t>(random.below(3)),
                            .revision = static_cast<std::uint32_t>(random.below(100)),
                            .sequence = random.below(1000),
                            .length = 1 + random.below(tcp::kPartBytes)};
    if (i % 2 == 0) header.part = static_cast<std::uint32_t>(random.below(70'000));
    auto bytes = tcp::encode_frame(header);
    for (std::uint64_t change = random.below(3); change > 0; --change) {
      bytes[5 + random.below(23)] = random_byte(random);
    }
    wire::store<std::uint32_t>(bytes, 28, crc32c(std::span(bytes).first(28)));
    const auto read = tcp::decode_frame(bytes);
    if (!read) {
      ASSERT_FALSE(read.error().message.empty());
      continue;
    }
    ++accepted;
    ASSERT_LE(read->length, tcp::kMaxMessageBytes);
    if (read->type == tcp::FrameType::kPart) {
      ASSERT_GE(read->length, 1U);
      ASSERT_LE(read->length, tcp::kPartBytes);
    }
    ASSERT_EQ(tcp::encode_frame(*read), bytes) << i;
  }
  EXPECT_GT(accepted, inputs(1'000'000));
}

TEST(FuzzNetwork, PackedSumsAreReadOrRefusedAndNothingBesideThemIsWritten) {
  Random random(2);
  int refused = 0;
  for (int i = 0, count = inputs(2'500'000); i < count; ++i) {
    std::vector<double> sums(1 + random.below(300));
    for (double& sum : sums) sum = std::ldexp(static_cast<double>(random.below(1000)), -44);
    std::vector<std::byte> packed(tcp::packing_room(sums.size()));
    packed.resize(tcp::pack_sums(sums, packed));
    ASSERT_FALSE(packed.empty());
    for (std::uint64_t change = 1 + random.below(3); change > 0; --change) {
      const std::uint64_t at = random.below(packed.size());
      switch (random.below(4)) {
        case 0:
          packed.resize(at + 1);
          break;
        case 1:
          packed.insert(packed.begin() + static_cast<std::ptrdiff_t>(at), random_byte(random));
          break;
        case 2:
          packed[0] = static_cast<std::byte>(random.below(10));
          break;
        default:
          packed[at] = random_byte(random);
      }
    }
    std::vector<double> read(sums.size() + 1, -1);
    const Status done = tcp::unpack_sums(packed, std::span(read).first(sums.size()));
    ASSERT_EQ(read.back(), -1);
    if (done) continue;
    ++refused;
    ASSERT_EQ(done.error().code, Code::kInvalid);
  }
  EXPECT_GT(refused, inputs(500'000));
}

TEST(FuzzNetwork, EncodedTensorsDecodeWithinTheirTensorToWhatEncodesToTheSameBytes) {
  Random random(3);
  for (int i = 0, count = inputs(2'500'000); i < count; ++i) {
    const int bits = i % 2 == 0 ? 8 : 6;
    const ops::CodecShape shape{
        .bits = bits, .samples = 1, .count = 1 + static_cast<int>(random.below(70))};
    std::vector<unsigned char> bytes(ops::encoded_sample_bytes(shape));
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random.below(256));
    const auto decode = [&](const std::vector<unsigned char>& from) {
      std::vector<float> numbers(ops::codec_numbers(shape) + 1, -1);
      test::run(ops::DecodeBlocks{shape, from.data(), test::elements(numbers.data())});
      EXPECT_EQ(numbers.back(), -1);
      return numbers;
    };
    const auto encode = [&](const std::vector<float>& numbers) {
      std::vector<unsigned char> to(bytes.size() + 1, 0xaa);
      test::run(ops::EncodeBlocks{shape, test::elements(numbers.data()), to.data()});
      EXPECT_EQ(to.back(), 0xaa);
      return to;
    };
    const std::vector<unsigned char> once = encode(decode(bytes));
    ASSERT_EQ(encode(decode(once)), once) << bits << " bits, input " << i;
  }
}

TEST(FuzzNetwork, PlansWithCodecsAreReadAndJudgedOrRefusedInOneLine) {
  const std::string good =
      R"({"apiVersion":"weir.dev/plan/v4","jobUid":"u","microBatches":[8],"revision":7,)"
      R"("codecs":{"forward":["Int8","Raw"],"backward":["Int6","BF16"]},)"
      R"("schedule":{"caps":[4,2,1],"dispatch":"Hint","k":1,"microBatchSize":8,"type":"KFKB"},)"
      R"("stages":[{"index":0,"layers":[0,3]},{"index":1,"layers":[4,5]},{"index":2,"layers":[6,7]}],)"
      R"("state":"Keep","trigger":"Compress"})";
  ASSERT_TRUE(protocol::decode_plan(good)) << protocol::decode_plan(good).error().message;
  constexpr const char* kNames[] = {"\"Raw\"", "\"BF16\"", "\"Int8\"", "\"Int6\"", "\"Int4\""};
  std::mt19937 random(4);
  int refused = 0;
  for (int i = 0, count = inputs(1'000'000); i < count; ++i) {
    std::string text = good;
    if (random() % 2 == 0) {  // another list of names
      std::string names;
      for (auto left = random() % 5; left > 0; --left) {
        names += std::string(names.empty() ? "" : ",") + kNames[random() % std::size(kNames)];
      }
      text.replace(text.find("\"Int8\",\"Raw\""), 12, names);
    } else {
      text = damaged(text, random);
    }
    const auto plan = protocol::decode_plan(text);
    if (!plan) {
      ++refused;
      ASSERT_EQ(plan.error().message.find('\n'), std::string::npos);
      continue;
    }
    for (const std::string& rule : schedule::broken_rules(*plan, -1)) {
      ASSERT_EQ(rule.find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(refused, inputs(250'000));
}

}  // namespace network_test
}  // namespace weir::fuzz
