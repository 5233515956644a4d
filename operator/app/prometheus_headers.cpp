// SPDX-License-Identifier: Apache-2.0
#include "operator/app/prometheus_headers.h"

#include <memory>
#include <string>

#include "operator/kube/auth.h"
#include "worker/base/digest.h"

namespace weir::operator_app {
namespace {

// Gives the value of the Authorization header. If it is empty, none is sent.
std::function<std::string()> authorization(const Options& options, Clock& clock) {
  const auto file = [&clock](const std::string& path) {
    return std::make_shared<kube::TokenSource>("", path, clock);
  };
  if (!options.prometheus_bearer_token_file.empty()) {
    return
        [token = file(options.prometheus_bearer_token_file)] { return "Bearer " + token->token(); };
  }
  if (!options.prometheus_basic_auth_dir.empty()) {
    return [name = file(options.prometheus_basic_auth_dir + "/username"),
            password = file(options.prometheus_basic_auth_dir + "/password")] {
      return "Basic " + to_base64(name->token() + ":" + password->token());
    };
  }
  return {};
}

}  // namespace

std::function<http::Headers()> prometheus_headers(const Options& options, Clock& clock) {
  auto who = authorization(options, clock);
  if (!who && options.prometheus_headers.empty()) return {};
  return [who = std::move(who), fixed = options.prometheus_headers] {
    http::Headers headers = fixed;
    if (who) headers.emplace_back("Authorization", who());
    return headers;
  };
}

}  // namespace weir::operator_app
