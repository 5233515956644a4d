// SPDX-License-Identifier: Apache-2.0
// `weir-operator check`: says what is missing in this cluster, one line each; for support and
// `helm test`.
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

// What a check asks; all must outlive it.
struct CheckParts {
  kube::Client& client;
  Clock& clock;
  std::ostream& out;
  http::Transport* prometheus = nullptr;   // null: not configured
  std::function<http::Headers()> headers;  // for Prometheus; may be empty
  // A transport to the control API that trusts these certificates only, "" = any.
  std::function<std::unique_ptr<http::Transport>(const std::string& ca_pem)> control;
  std::string api_server;  // its URL
};

// 0: all is there; 1: something is missing; 2: the API server cannot be reached.
int check_cluster(const Options& options, const CheckParts& parts);

// check_cluster with the transports of these options; 2 also for an unreadable kubeconfig or URL.
int check_command(const Options& options);

}  // namespace weir::operator_app
