// SPDX-License-Identifier: Apache-2.0
// `weir-operator check`: prints a line for everything that the operator needs in this cluster, and
// whether it is there. For support and `helm test`.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>

#include "operator/app/options.h"
#include "operator/kube/client.h"
#include "worker/base/clock.h"
#include "worker/http/transport.h"

namespace weir::operator_app {

// The services that a check asks. All of them must outlive the check.
struct CheckParts {
  kube::Client& client;
  Clock& clock;
  std::ostream& out;
  http::Transport* prometheus = nullptr;   // null = not configured
  std::function<http::Headers()> headers;  // for requests to Prometheus; may be empty
  // Makes a transport to the control API that trusts only these certificates; "" = any.
  std::function<std::unique_ptr<http::Transport>(const std::string& ca_pem)> control;
  std::string api_server;  // URL of the API server
};

// Exit code: 0 = all is there, 1 = something is missing, 2 = the API server cannot be reached.
int check_cluster(const Options& options, const CheckParts& parts);

// Makes the transports that the options name and calls check_cluster. Exit code 2 also for an
// unreadable kubeconfig or URL.
int check_command(const Options& options);

}  // namespace weir::operator_app
