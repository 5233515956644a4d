// SPDX-License-Identifier: Apache-2.0
#include "worker/wire/handshake.h"

#include <algorithm>

#include "worker/base/check.h"
#include "worker/base/digest.h"
#include "worker/wire/little_endian.h"

namespace weir::transport::tcp {
namespace {

constexpr std::uint32_t kHandshakeMagic = 0x48524557;  // "WERH"
constexpr std::uint8_t kHandshakeVersion = 1;
constexpr std::size_t kMaxJobUid = 128;
constexpr std::size_t kMaxReason = 300;
constexpr std::uint32_t kMaxStage = 1U << 20;
// A purpose other than a link is sent in the channel field, as a value above the two channels.
constexpr std::uint8_t kPurposes = 1;
// HELLO: u32 revision, u16 incarnation, u8 channel, u8 length of uid, u32 replica, from, to, nonce,
// uid
constexpr std::size_t kHelloFixed = 20 + kNonceBytes;

Error invalid(std::string reason) {
  return {Code::kInvalid, "handshake: " + std::move(reason)};
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
std::span<std::byte> bytes_of(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}

std::string proof(std::string_view label, std::string_view key, std::string_view hello_body,
                  std::string_view nonce) {
  std::string text(label);
  text.append(hello_body).append(nonce);
  return hmac_sha256(key, text);
}

}  // namespace

std::string encode_record(const Record& record) {
  WEIR_CHECK(record.body.size() <= kMaxRecordBody, "handshake records are short");
  std::string out(kRecordPrefixBytes, '\0');
  store<std::uint32_t>(bytes_of(out), 0, kHandshakeMagic);
  store<std::uint8_t>(bytes_of(out), 4, kHandshakeVersion);
  store<std::uint8_t>(bytes_of(out), 5, static_cast<std::uint8_t>(record.type));
  store<std::uint16_t>(bytes_of(out), 6, static_cast<std::uint16_t>(record.body.size()));
  return out + record.body;
}

Result<RecordPrefix> decode_record_prefix(std::string_view bytes) {
  if (bytes.size() < kRecordPrefixBytes) return invalid("too short");
  const auto in = bytes_of(bytes);
  if (load<std::uint32_t>(in, 0) != kHandshakeMagic) return invalid("not a weir data connection");
  if (load<std::uint8_t>(in, 4) != kHandshakeVersion) {
    return invalid("unknown version " + std::to_string(load<std::uint8_t>(in, 4)));
  }
  const auto type = load<std::uint8_t>(in, 5);
  const auto length = load<std::uint16_t>(in, 6);
  if (type > static_cast<std::uint8_t>(RecordType::kRefused)) return invalid("unknown record");
  if (length > kMaxRecordBody) return invalid("record too long");
  return RecordPrefix{static_cast<RecordType>(type), length};
}

std::string encode_hello(const Hello& hello) {
  WEIR_CHECK(hello.job_uid.size() <= kMaxJobUid && hello.nonce.size() == kNonceBytes,
             "fields of a hello have their sizes");
  std::string out(20, '\0');
  const auto to = bytes_of(out);
  store<std::uint32_t>(to, 0, hello.generation.revision);
  store<std::uint16_t>(to, 4, hello.generation.incarnation);
  store<std::uint8_t>(to, 6,
                      hello.purpose == Purpose::kLink
                          ? static_cast<std::uint8_t>(hello.channel)
                          : static_cast<std::uint8_t>(kPurposes + static_cast<int>(hello.purpose)));
  store<std::uint8_t>(to, 7, static_cast<std::uint8_t>(hello.job_uid.size()));
  store<std::uint32_t>(to, 8, hello.replica);
  store<std::uint32_t>(to, 12, hello.from_stage);
  store<std::uint32_t>(to, 16, hello.to_stage);
  return out + hello.nonce + hello.job_uid;
}

Result<Hello> decode_hello(std::string_view body) {
  if (body.size() < kHelloFixed) return invalid("hello too short");
  const auto in = bytes_of(body);
  const auto channel = load<std::uint8_t>(in, 6);
  const auto uid_bytes = load<std::uint8_t>(in, 7);
  const bool link = channel <= kPurposes;
  if (channel > kPurposes + static_cast<int>(Purpose::kProbe)) {
    return invalid("unknown channel");
  }
  if (uid_bytes > kMaxJobUid || body.size() != kHelloFixed + uid_bytes) {
    return invalid("hello has a wrong length");
  }
  Hello hello{.job_uid = std::string(body.substr(kHelloFixed)),
              .generation = {load<std::uint32_t>(in, 0), load<std::uint16_t>(in, 4)},
              .replica = load<std::uint32_t>(in, 8),
              .from_stage = load<std::uint32_t>(in, 12),
              .to_stage = load<std::uint32_t>(in, 16),
              .channel = link ? static_cast<Channel>(channel) : Channel::kForward,
              .nonce = std::string(body.substr(20, kNonceBytes)),
              .purpose = link ? Purpose::kLink : static_cast<Purpose>(channel - kPurposes)};
  if (std::max({hello.replica, hello.from_stage, hello.to_stage}) > kMaxStage) {
    return invalid("impossible stage or replica");
  }
  return hello;
}

std::string encode_challenge(const Challenge& challenge) {
  return challenge.nonce + challenge.proof;
}

Result<Challenge> decode_challenge(std::string_view body) {
  if (body.size() != kNonceBytes + kProofBytes) return invalid("challenge has a wrong length");
  return Challenge{std::string(body.substr(0, kNonceBytes)), std::string(body.substr(kNonceBytes))};
}

std::string encode_refusal(const Error& error) {
  return std::string(1, static_cast<char>(error.code)) + error.message.substr(0, kMaxReason);
}

Error decode_refusal(std::string_view body) {
  std::string reason(body.substr(std::min<std::size_t>(1, body.size()), kMaxReason));
  for (char& c : reason) {
    if (c < ' ' || c > '~') c = '?';  // the text goes into logs and conditions
  }
  const auto code = body.empty() ? Code::kUnavailable : static_cast<Code>(body.front());
  if (code == Code::kForbidden || code == Code::kConflict) return {code, std::move(reason)};
  return {Code::kUnavailable, std::move(reason)};
}

std::string acceptor_proof(std::string_view key, std::string_view hello_body,
                           std::string_view acceptor_nonce) {
  return proof("weir data 1 acceptor\n", key, hello_body, acceptor_nonce);
}

std::string connector_proof(std::string_view key, std::string_view hello_body,
                            std::string_view acceptor_nonce) {
  return proof("weir data 1 connector\n", key, hello_body, acceptor_nonce);
}

}  // namespace weir::transport::tcp
