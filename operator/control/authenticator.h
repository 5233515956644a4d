// SPDX-License-Identifier: Apache-2.0
// Who is calling: bearer tokens of pods, checked by TokenReview with our audience, remembered for a
// while by their hash (worker/protocol/README.md "Control API"). Thread-safe; authenticate() may
// block on the API server, so it runs on the auth threads only.
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

constexpr const char* kAudience = "weir.dev/control";
constexpr std::chrono::seconds kAcceptedFor{60}, kRejectedFor{5};
constexpr double kReviewsPerSecond = 50;       // also the burst
constexpr std::size_t kMaxRemembered = 20000;  // two tokens for each of 8000 pods, and noise

struct Identity {
  std::string pod_name, pod_uid;
};

// The question to the API server, so that tests need none.
class TokenReviewer {
 public:
  virtual ~TokenReviewer() = default;
  // kUnauthorized: rejected, or not a pod's token; other codes: could not ask.
  virtual Result<Identity> review(const std::string& token) = 0;
};
std::unique_ptr<TokenReviewer> make_token_reviewer(kube::Client& client);

class Authenticator {
 public:
  // observe: "accepted", "rejected", "error" or "throttled" for each question; may be empty.
  Authenticator(TokenReviewer& reviewer, Clock& clock,
                std::function<void(const char* result)> observe);

  // kUnauthorized; kThrottled: over the budget; kUnavailable: could not ask.
  Result<Identity> authenticate(const std::string& token);

 private:
  struct Verdict {
    std::optional<Identity> identity;  // nothing: rejected
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
