// SPDX-License-Identifier: Apache-2.0
#include "worker/wire/handshake.h"

#include <gtest/gtest.h>

namespace weir::wire {
namespace handshake_test {

Hello hello() {
  return {.job_uid = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0",
          .purpose = Purpose::kBackwardLink,
          .body = "123456789012345678",
          .nonce = std::string(kNonceBytes, 'n')};
}

TEST(Handshake, HelloSurvivesTheWire) {
  const auto decoded = decode_hello(encode_hello(hello()));

  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->job_uid, hello().job_uid);
  EXPECT_EQ(decoded->purpose, Purpose::kBackwardLink);
  EXPECT_EQ(decoded->body, hello().body);
  EXPECT_EQ(decoded->nonce, hello().nonce);
}

// The bytes of version 1 of port 7071.
TEST(Handshake, HelloHasItsBytes) {
  const std::string bytes = encode_hello(hello());

  EXPECT_EQ(bytes.substr(0, 20), std::string("123456\x01\x24") + "789012345678");
  EXPECT_EQ(bytes.substr(20), hello().nonce + hello().job_uid);
}

TEST(Handshake, EveryPurposeSurvivesTheWire) {
  for (const Purpose purpose : {Purpose::kForwardLink, Purpose::kState, Purpose::kReplicaGroup,
                                Purpose::kProbe, Purpose::kControl, Purpose::kCopy}) {
    Hello other = hello();
    other.purpose = purpose;
    const auto decoded = decode_hello(encode_hello(other));
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded->purpose, purpose);
  }
}

TEST(Handshake, TheBodyMayBeLongerUpToALimit) {
  Hello other = hello();
  other.body += "pod";
  const auto decoded = decode_hello(encode_hello(other));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->body, other.body);
  EXPECT_FALSE(decode_hello(encode_hello(other) + std::string(kBodyTail, 'x')));
}

TEST(Handshake, RefusesCutLongAndImpossibleHellos) {
  const std::string text = encode_hello(hello());
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(decode_hello(text.substr(0, size))) << size;
  }
  EXPECT_FALSE(decode_hello(text + std::string(kBodyTail + 1, 'x')));
  std::string purpose = text;
  purpose[6] = 7;
  EXPECT_FALSE(decode_hello(purpose));
}

TEST(Handshake, NamesBothVersionsToAPeerOfTheFirstOne) {
  EXPECT_EQ(decode_record_prefix(std::string("\0\0\0\x4fweir", 8)).error().message,
            "the peer speaks weir-control/1, this worker weir-control/2");
}

TEST(Handshake, NamesBothVersionsToAPeerOfAnotherRelease) {
  std::string prefix = encode_record({RecordType::kProof, "abc"}).substr(0, kRecordPrefixBytes);
  prefix[4] = 2;
  EXPECT_EQ(decode_record_prefix(prefix).error().message,
            "handshake: the peer speaks version 2, this worker 1");
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
  other.body[4] = 4;
  EXPECT_NE(proof, acceptor_proof("key", encode_hello(other), "nonce"));
}

TEST(Handshake, RefusalKeepsItsCodeAndLosesControlCharacters) {
  const Error error = decode_refusal(encode_refusal({Code::kConflict, "older\n\x1b[31m"}));

  EXPECT_EQ(error.code, Code::kConflict);
  EXPECT_EQ(error.message, "older??[31m");
  EXPECT_EQ(decode_refusal("").code, Code::kUnavailable);
  EXPECT_EQ(decode_refusal("\x7Fjunk").code, Code::kUnavailable);
}

}  // namespace handshake_test
}  // namespace weir::wire
