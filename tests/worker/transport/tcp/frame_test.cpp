// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/frame.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "worker/base/digest.h"
#include "worker/base/random.h"
#include "worker/wire/handshake.h"
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
  store<std::uint32_t>(bytes, 28, crc32c(std::span(bytes).first(28)));
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
  EXPECT_EQ(load<std::uint32_t>(bytes, 28), crc32c(std::span(bytes).first(28)));
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
  EXPECT_EQ(reason(with_byte(4, 9)), "frame header: unknown version 9");
  EXPECT_EQ(reason(with_byte(5, 0x60)), "frame header: unknown type");
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

TEST(Frame, RandomBytesAreRefusedAndNeverCrash) {
  Random random(20240607);
  for (int i = 0; i < 20'000; ++i) {
    Bytes bytes{};
    for (auto& b : bytes) b = static_cast<std::byte>(random.below(256));
    if (i % 2 == 0) {  // half of them pass magic and version
      store<std::uint32_t>(bytes, 0, 0x31524557);
      store<std::uint8_t>(bytes, 4, 1);
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

Hello hello() {
  return {.job_uid = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0",
          .generation = {12, 3},
          .replica = 1,
          .from_stage = 2,
          .to_stage = 1,
          .channel = Channel::kBackward,
          .nonce = std::string(kNonceBytes, 'n')};
}

TEST(Handshake, HelloSurvivesTheWire) {
  const auto decoded = decode_hello(encode_hello(hello()));

  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->job_uid, hello().job_uid);
  EXPECT_EQ(decoded->generation, hello().generation);
  EXPECT_EQ(decoded->replica, 1U);
  EXPECT_EQ(decoded->from_stage, 2U);
  EXPECT_EQ(decoded->to_stage, 1U);
  EXPECT_EQ(decoded->channel, Channel::kBackward);
  EXPECT_EQ(decoded->nonce, hello().nonce);
}

TEST(Handshake, EveryPurposeSurvivesTheWire) {
  for (const Purpose purpose :
       {Purpose::kLink, Purpose::kState, Purpose::kReplicaGroup, Purpose::kProbe}) {
    Hello other = hello();
    other.purpose = purpose;
    const auto decoded = decode_hello(encode_hello(other));
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded->purpose, purpose);
  }
}

TEST(Handshake, RefusesCutLongAndImpossibleHellos) {
  const std::string body = encode_hello(hello());
  for (std::size_t size = 0; size < body.size(); ++size) {
    EXPECT_FALSE(decode_hello(body.substr(0, size))) << size;
  }
  EXPECT_FALSE(decode_hello(body + "x"));
  std::string channel = body;
  channel[6] = 5;  // 2 to 4: purposes other than a link
  EXPECT_FALSE(decode_hello(channel));
  std::string stage = body;
  stage[19] = 0x7F;
  EXPECT_FALSE(decode_hello(stage));
}

TEST(Handshake, RefusesForeignProtocolsAndLongRecords) {
  std::string prefix = encode_record({RecordType::kProof, "abc"}).substr(0, kRecordPrefixBytes);
  ASSERT_TRUE(decode_record_prefix(prefix));
  EXPECT_EQ(decode_record_prefix(prefix)->body_bytes, 3U);

  EXPECT_FALSE(decode_record_prefix("GET / HT"));
  EXPECT_FALSE(decode_record_prefix(prefix.substr(0, 7)));
  prefix[7] = 0x7F;
  EXPECT_FALSE(decode_record_prefix(prefix));
}

TEST(Handshake, ProofsDependOnKeyHelloNonceAndSide) {
  const std::string body = encode_hello(hello());
  const std::string proof = acceptor_proof("key", body, "nonce");

  EXPECT_EQ(proof.size(), kProofBytes);
  EXPECT_NE(proof, connector_proof("key", body, "nonce"));
  EXPECT_NE(proof, acceptor_proof("another", body, "nonce"));
  EXPECT_NE(proof, acceptor_proof("key", body, "another"));
  Hello other = hello();
  other.generation.incarnation = 4;
  EXPECT_NE(proof, acceptor_proof("key", encode_hello(other), "nonce"));
}

TEST(Handshake, RefusalKeepsItsCodeAndLosesControlCharacters) {
  const Error error = decode_refusal(encode_refusal({Code::kConflict, "older\n\x1b[31m"}));

  EXPECT_EQ(error.code, Code::kConflict);
  EXPECT_EQ(error.message, "older??[31m");
  EXPECT_EQ(decode_refusal("").code, Code::kUnavailable);
  EXPECT_EQ(decode_refusal("\x7Fjunk").code, Code::kUnavailable);
}

}  // namespace frame_test
}  // namespace weir::transport::tcp
