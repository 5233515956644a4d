// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/frame.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "worker/base/digest.h"
#include "worker/base/random.h"
#include "worker/transport/tcp/place.h"
#include "worker/transport/tcp/tcp_transport.h"
#include "worker/wire/little_endian.h"

namespace weir::transport::tcp {
namespace frame_test {

using Bytes = std::array<std::byte, kFrameHeaderBytes>;

FrameHeader data_header() {
  return {.type = FrameType::kData,
          .channel = Channel::kBackward,
          .incarnation = 7,
          .revision = 1234567,
          .sequence = 0x0123456789ABCDEF,
          .length = 17'000'000};
}

// Changes a byte and makes the checksum right again, as a clever or broken peer would.
Bytes with_byte(std::size_t index, unsigned value) {
  Bytes bytes = encode_frame(data_header());
  bytes[index] = static_cast<std::byte>(value);
  wire::store<std::uint32_t>(bytes, 28, crc32c(std::span(bytes).first(28)));
  return bytes;
}

TEST(Frame, SurvivesTheWire) {
  const auto decoded = decode_frame(encode_frame(data_header()));

  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, data_header());
}

TEST(Frame, IsLittleEndianWithTheChecksumAtItsEnd) {
  const Bytes bytes = encode_frame(data_header());

  EXPECT_EQ(to_hex({reinterpret_cast<const char*>(bytes.data()), 28}),
            "57455231"
            "01"
            "01"
            "0700"
            "87d61200"
            "efcdab8967452301"
            "4066030100000000");
  EXPECT_EQ(wire::load<std::uint32_t>(bytes, 28), crc32c(std::span(bytes).first(28)));
}

TEST(Frame, RefusesWhatIsCut) {
  const Bytes bytes = encode_frame(data_header());
  for (std::size_t size = 0; size < kFrameHeaderBytes; ++size) {
    EXPECT_FALSE(decode_frame(std::span(bytes).first(size))) << size;
  }
}

TEST(Frame, RefusesEveryFlippedBit) {
  for (std::size_t bit = 0; bit < kFrameHeaderBytes * 8; ++bit) {
    Bytes bytes = encode_frame(data_header());
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(decode_frame(bytes)) << bit;
  }
}

TEST(Frame, NamesWhatIsWrong) {
  const auto reason = [](const Bytes& bytes) {
    const auto decoded = decode_frame(bytes);
    return decoded ? "" : decoded.error().message;
  };
  Bytes broken = encode_frame(data_header());
  broken[13] ^= std::byte{1};

  EXPECT_EQ(reason(with_byte(0, 0)), "frame header: wrong magic");
  EXPECT_EQ(reason(with_byte(4, 9)), "frame header: the peer speaks version 9, this worker 1");
  EXPECT_EQ(reason(with_byte(5, 0x70)), "frame header: unknown type");
  EXPECT_EQ(reason(with_byte(5, 0x02)), "frame header: unknown channel");
  EXPECT_EQ(reason(broken), "frame header: wrong checksum");
}

TEST(Frame, RefusesHugeAndImpossibleLengths) {
  EXPECT_FALSE(decode_frame(with_byte(27, 0xFF)));  // 2^63 and more
  FrameHeader header = data_header();
  header.length = kMaxMessageBytes;
  EXPECT_TRUE(decode_frame(encode_frame(header)));
  header.length = kMaxMessageBytes + 1;
  EXPECT_FALSE(decode_frame(encode_frame(header)));
  for (const FrameType type : {FrameType::kCredit, FrameType::kPing, FrameType::kPong,
                               FrameType::kGoodbye, FrameType::kAcknowledgement}) {
    header.type = type;
    header.length = 1;
    EXPECT_FALSE(decode_frame(encode_frame(header)));
  }
}

TEST(Frame, APartHasItsIndexBesideItsLength) {
  FrameHeader header = data_header();
  header.type = FrameType::kPart;
  header.part = 0xFFFF'FFFF;
  header.length = kPartBytes;
  const auto decoded = decode_frame(encode_frame(header));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, header);
  for (const std::size_t wrong : {std::size_t{0}, kPartBytes + 1}) {
    header.length = wrong;
    EXPECT_FALSE(decode_frame(encode_frame(header))) << wrong;
  }
}

TEST(Frame, RandomBytesAreRefusedAndNeverCrash) {
  Random random(20240607);
  for (int i = 0; i < 20'000; ++i) {
    Bytes bytes{};
    for (auto& b : bytes) b = static_cast<std::byte>(random.below(256));
    if (i % 2 == 0) {  // half of them pass magic and version
      wire::store<std::uint32_t>(bytes, 0, 0x31524557);
      wire::store<std::uint8_t>(bytes, 4, 1);
    }
    EXPECT_FALSE(decode_frame(bytes));
  }
}

TEST(Acknowledgement, SurvivesTheWireAndRefusesNonsense) {
  const Arrival arrival{17'000'000, std::chrono::milliseconds(136)};
  const auto decoded = decode_acknowledgement(encode_acknowledgement(arrival));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->counted_bytes, arrival.counted_bytes);
  EXPECT_EQ(decoded->busy, arrival.busy);

  auto bytes = encode_acknowledgement(arrival);
  EXPECT_FALSE(decode_acknowledgement(std::span(bytes).first(15)));
  bytes[15] = std::byte{0x80};  // negative busy time
  EXPECT_FALSE(decode_acknowledgement(bytes));
}

TEST(Place, SurvivesTheWire) {
  const Place place{.generation = {12, 3}, .replica = 1, .from_stage = 2, .to_stage = 1};

  const auto decoded = decode_place(encode_place(place));

  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->generation, place.generation);
  EXPECT_EQ(decoded->replica, 1U);
  EXPECT_EQ(decoded->from_stage, 2U);
  EXPECT_EQ(decoded->to_stage, 1U);
  EXPECT_EQ(decoded->lanes, 1);
  EXPECT_EQ(encode_place(place).size(), wire::kBodyBytes) << "as before there were several";
}

TEST(Place, NamesAConnectionAmongSeveral) {
  const auto decoded = decode_place(encode_place({.lane = 3, .lanes = 4}));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->lane, 3);
  EXPECT_EQ(decoded->lanes, 4);
  EXPECT_FALSE(decode_place(encode_place({.lane = 4, .lanes = 4})));
  EXPECT_FALSE(decode_place(encode_place({.lane = 0, .lanes = kMostConnections + 1})));
}

TEST(Place, IsRefusedWhenItIsImpossible) {
  std::string body = encode_place({});
  EXPECT_FALSE(decode_place(body + "x"));
  EXPECT_FALSE(decode_place(body.substr(1)));
  body[17] = 0x7F;
  EXPECT_FALSE(decode_place(body));
}

}  // namespace frame_test
}  // namespace weir::transport::tcp
