// SPDX-License-Identifier: Apache-2.0
// How to reach the API server: from a kubeconfig, or from what every pod is given. Values only, no
// connection. Exec plugins, auth providers, tls-server-name and proxy-url are refused by name.
#pragma once

#include <functional>
#include <string>

#include "operator/kube/cpprest_transport.h"
#include "worker/base/result.h"
#include "worker/http/transport.h"

namespace weir::kube {

struct Credentials {
  std::string server;   // "https://10.0.0.1:6443"
  std::string ca_file;  // PEM; re-read for every connection
  std::string cert_file, key_file;
  TlsExtras tls;               // the same from memory (kubeconfig *-data), insecure
  std::string token;           // fixed; or
  std::string token_file;      // re-read (auth.h)
  std::string namespace_name;  // of the context or of this pod; "" = unknown
};

// path: --kubeconfig; "" = $KUBECONFIG (a list: the first file with a current-context wins, entries
// are looked up in order), then in-cluster, then ~/.kube/config. env answers "" for unset names.
// kInvalid names the file and the field.
using Environment = std::function<std::string(const std::string& name)>;
Result<Credentials> load_credentials(const std::string& path, const Environment& env);

// Options of a transport with these credentials.
http::Options transport_options(const Credentials& credentials);

}  // namespace weir::kube
