// SPDX-License-Identifier: Apache-2.0
// Reads how to reach the API server, from a kubeconfig or from the files in every pod. It makes no
// connection. Auth providers, passwords and proxy-url are refused by name, and so are exec plugins
// and tls-server-name unless the caller says that it can use them.
#pragma once

#include <functional>
#include <string>

#include "operator/kube/cpprest_transport.h"
#include "operator/kube/exec_credential.h"
#include "worker/base/result.h"
#include "worker/http/transport.h"

namespace weir::kube {

struct Credentials {
  std::string server;   // "https://10.0.0.1:6443"
  std::string ca_file;  // PEM; read again for every connection
  std::string cert_file, key_file;
  TlsExtras tls;               // the same from memory (*-data of a kubeconfig), and insecure
  std::string token;           // a fixed token, or
  std::string token_file;      // a file that is read again (auth.h)
  std::string namespace_name;  // of the context or of this pod; "" = unknown
  std::string tls_name;        // the name in the server's certificate; "" = the host of `server`
};

using RunPlugin = std::function<Result<ExecCredential>(const ExecPlugin&)>;

// Where credentials come from, and what the caller can do with them.
struct ConfigSource {
  std::string path;     // --kubeconfig
  std::string context;  // --context; "" = the current one
  // Runs an exec plugin. Its credential is not renewed, so a process that lasts cannot use it.
  RunPlugin run_plugin;
  bool takes_tls_name = false;  // of cluster; the transport of cpprestsdk cannot
};

// If the path is "", the first of these that exists is used: $KUBECONFIG, the pod's
// own account, ~/.kube/config. $KUBECONFIG may be a list of files: the first with a current-context
// wins, and entries are looked up in the order of the files. env returns "" for unset names.
// kInvalid names the file and the field.
using Environment = std::function<std::string(const std::string& name)>;
Result<Credentials> load_credentials(const ConfigSource& source, const Environment& env);
Result<Credentials> load_credentials(const std::string& path, const Environment& env);

// Options of a transport that uses these credentials.
http::Options transport_options(const Credentials& credentials);

}  // namespace weir::kube
