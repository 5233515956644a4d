// SPDX-License-Identifier: Apache-2.0
#include "operator/control/authenticator.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "operator/api/names.h"
#include "worker/base/digest.h"

namespace weir::control_server {
namespace {

using nlohmann::json;

const Error kRejected{Code::kUnauthorized, "the token was rejected"};

// The first text of user.extra[name]; "" = absent.
std::string extra(const json& user, const char* name) {
  const auto all = user.find("extra");
  if (all == user.end() || !all->is_object()) return "";
  const auto values = all->find(name);
  if (values == all->end() || !values->is_array() || values->empty()) return "";
  return values->front().is_string() ? values->front().get<std::string>() : "";
}

bool has_audience(const json& status) {
  const auto audiences = status.find("audiences");
  return audiences != status.end() && audiences->is_array() &&
         std::any_of(audiences->begin(), audiences->end(), [](const json& audience) {
           return audience.is_string() && audience.get_ref<const std::string&>() == api::kAudience;
         });
}

class KubeReviewer final : public TokenReviewer {
 public:
  explicit KubeReviewer(kube::Client& client) : client_(client) {}

  Result<Identity> review(const std::string& token) override {
    const json body{{"apiVersion", "authentication.k8s.io/v1"},
                    {"kind", "TokenReview"},
                    {"spec", {{"token", token}, {"audiences", {api::kAudience}}}}};
    const auto answer = client_.create(kube::token_reviews(), "",
                                       body.dump(-1, ' ', false, json::error_handler_t::replace));
    if (!answer) return answer.error().to_error().with("TokenReview");
    const json object = json::parse(*answer, nullptr, false);
    const auto status = object.is_object() ? object.find("status") : object.end();
    if (!object.is_object() || status == object.end() || !status->is_object()) {
      return Error{Code::kInternal, "TokenReview: no status"};
    }
    const auto authenticated = status->find("authenticated");
    const auto user = status->find("user");
    // A server that ignores audiences accepts a token for any audience, so it must name ours.
    if (authenticated == status->end() || *authenticated != true || !has_audience(*status) ||
        user == status->end() || !user->is_object()) {
      return kRejected;
    }
    Identity identity{extra(*user, "authentication.kubernetes.io/pod-name"),
                      extra(*user, "authentication.kubernetes.io/pod-uid")};
    if (identity.pod_name.empty() || identity.pod_uid.empty()) return kRejected;
    return identity;
  }

 private:
  kube::Client& client_;
};

}  // namespace

std::unique_ptr<TokenReviewer> make_token_reviewer(kube::Client& client) {
  return std::make_unique<KubeReviewer>(client);
}

Authenticator::Authenticator(TokenReviewer& reviewer, Clock& clock,
                             std::function<void(const char* result)> observe)
    : reviewer_(reviewer), clock_(clock), observe_(std::move(observe)), refilled_(clock.now()) {}

std::optional<Authenticator::Verdict> Authenticator::remembered(const std::string& hash) {
  const std::lock_guard lock(verdicts_mutex_);
  const auto found = verdicts_.find(hash);
  if (found == verdicts_.end()) return std::nullopt;
  if (found->second.until > clock_.now()) return found->second;
  verdicts_.erase(found);
  return std::nullopt;
}

bool Authenticator::take_budget() {
  const std::lock_guard lock(verdicts_mutex_);
  const SteadyTime now = clock_.now();
  const double passed = std::chrono::duration<double>(now - refilled_).count();
  budget_ = std::min(kReviewsPerSecond, budget_ + passed * kReviewsPerSecond);
  refilled_ = now;
  if (budget_ < 1) return false;
  budget_ -= 1;
  return true;
}

void Authenticator::remember(const std::string& hash, Verdict verdict) {
  const std::lock_guard lock(verdicts_mutex_);
  if (verdicts_.size() >= kMaxRemembered) {
    const SteadyTime now = clock_.now();
    std::erase_if(verdicts_, [now](const auto& entry) { return entry.second.until <= now; });
    if (verdicts_.size() >= kMaxRemembered) return;  // the token is reviewed again next time
  }
  verdicts_[hash] = std::move(verdict);
}

Result<Identity> Authenticator::authenticate(const std::string& token) {
  const std::string hash = sha256_hex(token);
  if (const auto verdict = remembered(hash)) {
    if (!verdict->identity) return kRejected;
    return *verdict->identity;
  }
  const auto observe = [this](const char* result) {
    if (observe_) observe_(result);
  };
  if (!take_budget()) {
    observe("throttled");
    return Error{Code::kThrottled, "too many new tokens"};
  }
  auto identity = reviewer_.review(token);
  if (identity) {
    observe("accepted");
    remember(hash, {*identity, clock_.now() + kAcceptedFor});
    return identity;
  }
  if (identity.error().code == Code::kUnauthorized) {
    observe("rejected");
    remember(hash, {std::nullopt, clock_.now() + kRejectedFor});
    return identity;
  }
  observe("error");
  return Error{Code::kUnavailable, identity.error().message};
}

}  // namespace weir::control_server
