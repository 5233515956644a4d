// SPDX-License-Identifier: Apache-2.0
// The way from a kubeconfig to the API server.
#pragma once

#include <memory>
#include <string>

#include "operator/cli/options.h"
#include "operator/kube/kube_config.h"
#include "worker/base/result.h"
#include "worker/http/transport.h"

namespace weir::cli {

struct Connection {
  kube::Credentials credentials;
  std::unique_ptr<http::Transport> transport;
};

// Runs the exec plugin of the user, if there is one. Makes no connection yet. kInvalid: what is
// wrong with the kubeconfig.
Result<Connection> connect(const Options& options, const kube::Environment& env);

// Options of a transport on Beast that uses these credentials. public_cas: a file with the CAs that
// count if the kubeconfig names none, as for kubectl; "" = there is none.
http::Options transport_for(const kube::Credentials& credentials, const std::string& public_cas);

}  // namespace weir::cli
