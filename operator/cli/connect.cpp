// SPDX-License-Identifier: Apache-2.0
#include "operator/cli/connect.h"

#include <array>
#include <chrono>
#include <filesystem>

#include "worker/http/beast_transport.h"

namespace weir::cli {
namespace {

constexpr std::chrono::seconds kRequestIdle{30};
// A log is followed through long silences; kubelets end a stream after 4 h.
constexpr std::chrono::hours kStreamIdle{4};

// Where Linux distributions keep the CAs of the system (the list of Go's crypto/x509).
constexpr std::array kPublicCas = {"/etc/ssl/certs/ca-certificates.crt",
                                   "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                                   "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                                   "/etc/ssl/cert.pem"};

std::string public_cas() {
  for (const char* file : kPublicCas) {
    std::error_code ignored;
    if (std::filesystem::exists(file, ignored)) return file;
  }
  return "";
}

}  // namespace

http::Options transport_for(const kube::Credentials& credentials, const std::string& cas) {
  http::Options options = kube::transport_options(credentials);
  options.ca_pem = credentials.tls.ca_pem;
  options.cert_pem = credentials.tls.cert_pem;
  options.key_pem = credentials.tls.key_pem;
  options.insecure = credentials.tls.insecure;
  options.tls_name = credentials.tls_name;
  if (options.ca_file.empty() && options.ca_pem.empty()) options.ca_file = cas;
  options.request_idle = kRequestIdle;
  options.stream_idle = kStreamIdle;
  return options;
}

Result<Connection> connect(const Options& options, const kube::Environment& env) {
  kube::ConfigSource source;
  source.path = options.kubeconfig;
  source.context = options.context;
  source.run_plugin = [](const kube::ExecPlugin& plugin) { return kube::run_exec_plugin(plugin); };
  source.takes_tls_name = true;
  WEIR_TRY(kube::Credentials credentials, kube::load_credentials(source, env));
  WEIR_TRY(auto transport, http::make_beast_transport(transport_for(credentials, public_cas())));
  return Connection{std::move(credentials), std::move(transport)};
}

}  // namespace weir::cli
