// SPDX-License-Identifier: Apache-2.0
#include "operator/app/prometheus_auth.h"

#include <memory>

#include "operator/kube/auth.h"
#include "worker/base/digest.h"

namespace weir::operator_app {

std::function<std::string()> prometheus_authorization(const Options& options, Clock& clock) {
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

}  // namespace weir::operator_app
