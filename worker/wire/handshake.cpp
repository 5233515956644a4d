// SPDX-License-Identifier: Apache-2.0
#include "worker/wire/handshake.h"

#include <algorithm>
#include <span>

#include "worker/base/check.h"
#include "worker/base/digest.h"
#include "worker/wire/little_endian.h"
#include "worker/wire/other_version.h"

namespace weir::wire {
namespace {

constexpr std::uint32_t kHandshakeMagic = 0x48524557;  // "WERH"
constexpr std::uint8_t kHandshakeVersion = 1;
constexpr std::size_t kMaxJobUid = 128;
constexpr std::size_t kMaxReason = 300;
// HELLO: 6 bytes of the body, u8 purpose, u8 length of uid, 12 bytes of the body, nonce, uid, rest
// of the body
constexpr std::size_t kBefore = 6, kAfter = kBodyBytes - kBefore;
constexpr std::size_t kNonceAt = kBodyBytes + 2, kUidAt = kNonceAt + kNonceBytes;
// The version of port 7070 before it had records, whose first frame a peer may send or wait for.
constexpr std::string_view kOldVersion = "weir-control/1", kVersion = "weir-control/2";

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
  if (bytes.substr(4, 4) == kOldVersion.substr(0, 4)) {  // after the length of its frame
    return Error{Code::kConflict, "the peer speaks " + std::string(kOldVersion) + ", this worker " +
                                      std::string(kVersion)};
  }
  if (load<std::uint32_t>(in, 0) != kHandshakeMagic) return invalid("not a weir connection");
  if (const auto theirs = load<std::uint8_t>(in, 4); theirs != kHandshakeVersion) {
    return invalid(other_version(theirs, kHandshakeVersion));
  }
  const auto type = load<std::uint8_t>(in, 5);
  const auto length = load<std::uint16_t>(in, 6);
  if (type > static_cast<std::uint8_t>(RecordType::kRefused)) return invalid("unknown record");
  if (length > kMaxRecordBody) return invalid("record too long");
  return RecordPrefix{static_cast<RecordType>(type), length};
}

std::string encode_hello(const Hello& hello) {
  WEIR_CHECK(hello.job_uid.size() <= kMaxJobUid && hello.nonce.size() == kNonceBytes &&
                 hello.body.size() >= kBodyBytes && hello.body.size() <= kBodyBytes + kBodyTail,
             "fields of a hello have their sizes");
  std::string out = hello.body.substr(0, kBefore);
  out += static_cast<char>(hello.purpose);
  out += static_cast<char>(hello.job_uid.size());
  return out + hello.body.substr(kBefore, kAfter) + hello.nonce + hello.job_uid +
         hello.body.substr(kBodyBytes);
}

Result<Hello> decode_hello(std::string_view text) {
  if (text.size() < kUidAt) return invalid("hello too short");
  const auto purpose = static_cast<std::uint8_t>(text[kBefore]);
  const auto uid_bytes = static_cast<std::uint8_t>(text[kBefore + 1]);
  if (purpose > static_cast<std::uint8_t>(Purpose::kCopy)) return invalid("unknown purpose");
  const std::size_t end = kUidAt + uid_bytes;
  if (uid_bytes > kMaxJobUid || text.size() < end || text.size() > end + kBodyTail) {
    return invalid("hello has a wrong length");
  }
  return Hello{.job_uid = std::string(text.substr(kUidAt, uid_bytes)),
               .purpose = static_cast<Purpose>(purpose),
               .body = std::string(text.substr(0, kBefore)) +
                       std::string(text.substr(kBefore + 2, kAfter)) +
                       std::string(text.substr(end)),
               .nonce = std::string(text.substr(kNonceAt, kNonceBytes))};
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

}  // namespace weir::wire
