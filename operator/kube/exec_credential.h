// SPDX-License-Identifier: Apache-2.0
// Exec plugins of a kubeconfig: programs such as `aws eks get-token` that print a token or a client
// certificate (client.authentication.k8s.io v1 and v1beta1). A plugin gets no terminal.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "worker/base/result.h"

namespace weir::kube {

// Users of cloud clusters wait for a token of the cloud; kubectl has no limit.
constexpr std::chrono::seconds kPluginLimit{60};

struct ExecPlugin {
  std::string api_version;
  std::string command;  // a path, or a name that is looked up in PATH
  std::vector<std::string> args;
  std::vector<std::pair<std::string, std::string>> env;  // added to that of this process
  std::string install_hint;                              // what to do if there is no such program
  std::string cluster_json;  // spec.cluster of the request; "" = not asked for
};

struct ExecCredential {
  std::string token, cert_pem, key_pem;  // a token, or both others, or all
};

// The text of KUBERNETES_EXEC_INFO. Pure.
std::string exec_info(const ExecPlugin& plugin);
// Reads what a plugin has printed. Pure. kInvalid with the reason: no ExecCredential of the wanted
// version, or one without a credential.
Result<ExecCredential> decode_exec_credential(const std::string& output,
                                              const std::string& api_version);

// Runs the plugin and waits for its end, at most `limit`; then it is killed with its children. The
// error names the program, how it ended, and the last line of its standard error.
Result<ExecCredential> run_exec_plugin(const ExecPlugin& plugin,
                                       std::chrono::milliseconds limit = kPluginLimit);

}  // namespace weir::kube
