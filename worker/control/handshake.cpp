// SPDX-License-Identifier: Apache-2.0
#include "worker/control/handshake.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "worker/base/digest.h"

namespace weir::control {
namespace {

constexpr std::string_view kHello = "weir-control/1";
constexpr std::size_t kNonceBytes = 32, kProofBytes = 32;  // SHA-256
constexpr int kMaxIndex = 1 << 20;                         // far above 4096 ranks

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> result;
  while (true) {
    const auto space = text.find(' ');
    result.push_back(text.substr(0, space));
    if (space == text.npos) return result;
    text.remove_prefix(space + 1);
  }
}

bool one_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7F; });
}

bool is_hex(std::string_view text, std::size_t bytes) {
  return text.size() == 2 * bytes && from_hex(text).has_value();
}

std::string proof(std::string_view role, const Claim& claim, const std::string& job_key,
                  const std::string& server_nonce) {
  std::string message(role);
  for (const std::string& part : {server_nonce, claim.nonce, claim.job_uid,
                                  std::to_string(claim.peer.worker_index), claim.peer.pod_uid}) {
    message += '\n' + part;
  }
  return to_hex(hmac_sha256(job_key, message));
}

std::string rank_proof(const Claim& claim, const std::string& key, const std::string& nonce) {
  return proof("weir-control rank", claim, key, nonce);
}
std::string coordinator_proof(const Claim& claim, const std::string& key,
                              const std::string& nonce) {
  return proof("weir-control coordinator", claim, key, nonce);
}

}  // namespace

std::string make_nonce() {
  return to_hex(random_bytes(kNonceBytes));
}

std::string challenge_text(const std::string& nonce) {
  return std::string(kHello) + ' ' + nonce;
}

Result<std::string> read_challenge(std::string_view text) {
  const auto parts = words(text);
  if (parts.size() != 2 || parts[0] != kHello || !is_hex(parts[1], kNonceBytes)) {
    return Error{Code::kInvalid, "the peer does not speak weir-control/1"};
  }
  return std::string(parts[1]);
}

Result<std::string> claim_text(const Claim& claim, const std::string& job_key,
                               const std::string& server_nonce) {
  if (!one_word(claim.job_uid)) return Error{Code::kInvalid, "job uid: not one word"};
  if (!one_word(claim.peer.pod_uid)) return Error{Code::kInvalid, "pod uid: not one word"};
  return claim.job_uid + ' ' + std::to_string(claim.peer.worker_index) + ' ' + claim.peer.pod_uid +
         ' ' + claim.nonce + ' ' + rank_proof(claim, job_key, server_nonce);
}

Result<Claim> check_claim(std::string_view text, const std::string& job_uid,
                          const std::string& job_key, const std::string& server_nonce) {
  const auto parts = words(text);
  Claim claim;
  if (parts.size() != 5 || !one_word(parts[0]) || !one_word(parts[2]) ||
      !is_hex(parts[3], kNonceBytes) || !is_hex(parts[4], kProofBytes)) {
    return Error{Code::kInvalid, "not a handshake"};
  }
  const auto [end, failure] =
      std::from_chars(parts[1].data(), parts[1].data() + parts[1].size(), claim.peer.worker_index);
  if (failure != std::errc() || end != parts[1].data() + parts[1].size() ||
      claim.peer.worker_index < 0 || claim.peer.worker_index >= kMaxIndex) {
    return Error{Code::kInvalid, "worker index out of range"};
  }
  claim.job_uid = parts[0];
  claim.peer.pod_uid = parts[2];
  claim.nonce = parts[3];
  if (claim.job_uid != job_uid) return Error{Code::kForbidden, "another job"};
  if (!equal_in_constant_time(rank_proof(claim, job_key, server_nonce), parts[4])) {
    return Error{Code::kForbidden, "wrong job key"};
  }
  return claim;
}

std::string acceptance_text(const Claim& claim, const std::string& job_key,
                            const std::string& server_nonce) {
  return "ok " + coordinator_proof(claim, job_key, server_nonce);
}

std::string refusal_text(const std::string& reason) {
  return "refused " + reason;
}

Status check_acceptance(std::string_view text, const Claim& claim, const std::string& job_key,
                        const std::string& server_nonce) {
  constexpr std::string_view kRefused = "refused ", kOk = "ok ";
  if (text.starts_with(kRefused)) {
    return Error{Code::kForbidden,
                 "refused by the coordinator: " + std::string(text.substr(kRefused.size()))};
  }
  if (!text.starts_with(kOk) ||
      !equal_in_constant_time(coordinator_proof(claim, job_key, server_nonce),
                              text.substr(kOk.size()))) {
    return Error{Code::kForbidden, "the coordinator does not hold the job key"};
  }
  return Unit{};
}

}  // namespace weir::control
