// SPDX-License-Identifier: Apache-2.0
// Records that open a connection of port 7070 or 7071. Pure. Both ends prove that they hold the job
// key, by an HMAC over both nonces and the purpose of the connection. Nothing secret is sent.
//   connector: HELLO     acceptor: CHALLENGE (its proof) or REFUSED
//   connector: PROOF     acceptor: ACCEPTED or REFUSED
// A record is: u32 magic, u8 version, u8 type, u16 length, then the body.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "worker/base/result.h"

namespace weir::wire {

constexpr std::size_t kRecordPrefixBytes = 8;
constexpr std::size_t kMaxRecordBody = 512;
constexpr std::size_t kNonceBytes = 16;
constexpr std::size_t kProofBytes = 32;  // HMAC-SHA-256

enum class RecordType : std::uint8_t { kHello, kChallenge, kProof, kAccepted, kRefused };

struct Record {
  RecordType type = RecordType::kHello;
  std::string body;
};
struct RecordPrefix {
  RecordType type = RecordType::kHello;
  std::size_t body_bytes = 0;
};

enum class Purpose : std::uint8_t {
  kForwardLink,   // to send activations from one stage to the next one
  kBackwardLink,  // to send gradients
  kState,         // to fetch layers
  kReplicaGroup,  // among the replicas of one stage
  kProbe,         // to time the network
  kControl,       // of a rank, to its coordinator
  kCopy,          // to fetch a snapshot
};

// The connection that the connector asks for.
struct Hello {
  std::string job_uid;  // at most 128 bytes
  Purpose purpose = Purpose::kForwardLink;
  // Bytes for the receiver of such connections: kBodyBytes and up to kBodyTail more.
  std::string body;
  std::string nonce;  // kNonceBytes
};
constexpr std::size_t kBodyBytes = 18, kBodyTail = 128;

struct Challenge {
  std::string nonce, proof;
};

std::string encode_record(const Record& record);
Result<RecordPrefix> decode_record_prefix(std::string_view bytes);  // of kRecordPrefixBytes

std::string encode_hello(const Hello& hello);
Result<Hello> decode_hello(std::string_view text);
std::string encode_challenge(const Challenge& challenge);
Result<Challenge> decode_challenge(std::string_view body);
// The reason is sent as text. Only the codes to which the connector reacts are distinguished.
std::string encode_refusal(const Error& error);
Error decode_refusal(std::string_view body);

// hello_body: as it was sent. The two proofs differ, so that neither can be sent back.
std::string acceptor_proof(std::string_view key, std::string_view hello_body,
                           std::string_view acceptor_nonce);
std::string connector_proof(std::string_view key, std::string_view hello_body,
                            std::string_view acceptor_nonce);

}  // namespace weir::wire
