// SPDX-License-Identifier: Apache-2.0
// The handshake of port 7070: both ends prove that they hold the job key, and neither sends it.
// Pure. Three frames of plain text, so that bytes of unknown peers reach only a small parser:
//   coordinator  weir-control/1 <nonce>
//   rank         <job uid> <worker index> <pod uid> <nonce> <proof>
//   coordinator  ok <proof>      or      refused <reason>
// proof = HMAC-SHA256(job key, role, both nonces, job uid, worker index, pod uid) in hex; a nonce
// is 32 random bytes in hex. The roles differ, so that a proof cannot be sent back to its sender.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "worker/base/result.h"

namespace weir::control {

constexpr char kComponent[] = "control";  // in the log

constexpr std::size_t kMaxHandshakeFrame = 1024;  // three Kubernetes names and 192 hex digits

struct PeerId {
  int worker_index = 0;
  std::string pod_uid;
};

std::string make_nonce();
std::string challenge_text(const std::string& nonce);
// Returns the nonce. kInvalid: another protocol or version.
Result<std::string> read_challenge(std::string_view text);

struct Claim {
  std::string job_uid;
  PeerId peer;
  std::string nonce;
};
// kInvalid if a name contains white space, which separates the fields.
Result<std::string> claim_text(const Claim& claim, const std::string& job_key,
                               const std::string& server_nonce);
// kForbidden: wrong job or wrong key. kInvalid: the text is not a claim.
Result<Claim> check_claim(std::string_view text, const std::string& job_uid,
                          const std::string& job_key, const std::string& server_nonce);

std::string acceptance_text(const Claim& claim, const std::string& job_key,
                            const std::string& server_nonce);
std::string refusal_text(const std::string& reason);
// kForbidden: the coordinator refused, with its reason, or it does not hold the key.
Status check_acceptance(std::string_view text, const Claim& claim, const std::string& job_key,
                        const std::string& server_nonce);

}  // namespace weir::control
