// SPDX-License-Identifier: Apache-2.0
// Authenticates callers of the control API: a TokenReview with our audience checks a pod's bearer
// token, and the verdict is kept for a while by the token's hash (worker/protocol/README.md
// "Control API"). Thread-safe. authenticate() may block on the API server, so it runs on the auth
// threads only.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "operator/kube/client.h"
#include "worker/base/clock.h"
#include "worker/base/result.h"

namespace weir::control_server {

constexpr std::chrono::seconds kAcceptedFor{60}, kRejectedFor{5};
constexpr double kReviewsPerSecond = 50;       // also the burst
constexpr std::size_t kMaxRemembered = 20000;  // two tokens for each of 8000 pods, and spare

struct Identity {
  std::string pod_name, pod_uid;
};

// The request to the API server; an interface, so that tests need no API server.
class TokenReviewer {
 public:
  virtual ~TokenReviewer() = default;
  // kUnauthorized: the token is rejected or not a pod's; other codes: the request failed.
  virtual Result<Identity> review(const std::string& token) = 0;
};
std::unique_ptr<TokenReviewer> make_token_reviewer(kube::Client& client);

class Authenticator {
 public:
  // observe: gets "accepted", "rejected", "error" or "throttled" for each token that has no kept
  // verdict; may be empty.
  Authenticator(TokenReviewer& reviewer, Clock& clock,
                std::function<void(const char* result)> observe);

  // kUnauthorized: rejected; kThrottled: too many new tokens; kUnavailable: the request failed.
  Result<Identity> authenticate(const std::string& token);

 private:
  struct Verdict {
    std::optional<Identity> identity;  // nothing = rejected
    SteadyTime until{};
  };
  std::optional<Verdict> remembered(const std::string& hash);
  bool take_budget();
  void remember(const std::string& hash, Verdict verdict);

  TokenReviewer& reviewer_;
  Clock& clock_;
  const std::function<void(const char*)> observe_;
  std::mutex verdicts_mutex_;                // guards all below
  std::map<std::string, Verdict> verdicts_;  // by SHA-256 of the token
  double budget_ = kReviewsPerSecond;
  SteadyTime refilled_;
};

}  // namespace weir::control_server
