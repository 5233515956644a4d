// SPDX-License-Identifier: Apache-2.0
// yaml-cpp changes a tree when a Node that is not const is read or assigned, so all Nodes here are
// const and never assigned.
#include "operator/kube/kube_config.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include <yaml-cpp/yaml.h>

#include "worker/base/digest.h"
#include "worker/base/file_error.h"
#include "worker/base/log.h"
#include "worker/base/utf8.h"

namespace weir::kube {
namespace {

constexpr std::size_t kMaxConfigBytes = 1U << 20;  // kubeconfigs are kilobytes
constexpr auto kPodDir = "/var/run/secrets/kubernetes.io/serviceaccount";

Result<std::string> read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{Code::kNotFound, unreadable(path).message};
  std::ostringstream text;
  text << file.rdbuf();
  if (text.str().size() > kMaxConfigBytes) return invalid(path + ": above 1 MiB");
  return text.str();
}

struct Document {
  std::string path;
  YAML::Node root;
};

std::string text_at(const YAML::Node& node, const char* key) {
  if (!node.IsMap()) return "";
  const YAML::Node value = node[key];
  return value.IsDefined() && value.IsScalar() ? value.Scalar() : "";
}

// The entry of this name in a list such as clusters, from the first file that has it.
std::optional<YAML::Node> entry(const std::vector<Document>& documents, const char* list,
                                const char* kind, const std::string& name, std::string& folder) {
  for (const Document& document : documents) {
    const YAML::Node items = static_cast<const YAML::Node&>(document.root)[list];
    if (!items.IsDefined() || !items.IsSequence()) continue;
    for (const auto& item : items) {
      const YAML::Node whole = item;
      if (text_at(whole, "name") != name) continue;
      folder = std::filesystem::path(document.path).parent_path().string();
      const YAML::Node inner = static_cast<const YAML::Node&>(whole)[kind];
      if (inner.IsDefined() && inner.IsMap()) return YAML::Clone(inner);
    }
  }
  return std::nullopt;
}

std::string beside(const std::string& folder, const std::string& file) {
  if (file.empty() || std::filesystem::path(file).is_absolute()) return file;
  return (std::filesystem::path(folder) / file).string();
}

// Reads <key>-data, or if that is absent the file that <key> names.
Status file_or_data(const YAML::Node& node, const std::string& folder, const std::string& key,
                    std::string& file, std::string& pem) {
  const std::string data = text_at(node, (key + "-data").c_str());
  if (data.empty()) {
    file = beside(folder, text_at(node, key.c_str()));
    return Unit{};
  }
  const auto raw = from_base64(data);
  if (!raw) return invalid(key + "-data: not base64");
  pem = *raw;
  return Unit{};
}

Status read_cluster(const YAML::Node& cluster, const std::string& folder,
                    const ConfigSource& source, Credentials& out) {
  out.server = text_at(cluster, "server");
  if (!out.server.starts_with("https://") && !out.server.starts_with("http://")) {
    return invalid("server: '" + out.server + "' is no http URL");
  }
  out.tls_name = text_at(cluster, "tls-server-name");
  if (!out.tls_name.empty() && !source.takes_tls_name) {
    return invalid("tls-server-name: not supported");
  }
  if (!text_at(cluster, "proxy-url").empty()) return invalid("proxy-url: not supported");
  out.tls.insecure = text_at(cluster, "insecure-skip-tls-verify") == "true";
  if (out.tls.insecure) {
    log_warn("kube", "the API server's certificate is not checked (insecure-skip-tls-verify)");
  }
  return file_or_data(cluster, folder, "certificate-authority", out.ca_file, out.tls.ca_pem);
}

// Returns ExecCredential.spec.cluster as JSON: the part of the cluster that a plugin may see.
std::string cluster_json(const Credentials& known) {
  std::string ca = known.tls.ca_pem;
  if (ca.empty() && !known.ca_file.empty()) {
    if (auto text = read_text(known.ca_file)) ca = *std::move(text);
  }
  std::string text = R"({"server":)" + json_quoted(known.server);
  if (!ca.empty()) text += R"(,"certificate-authority-data":)" + json_quoted(to_base64(ca));
  if (!known.tls_name.empty()) text += R"(,"tls-server-name":)" + json_quoted(known.tls_name);
  if (known.tls.insecure) text += R"(,"insecure-skip-tls-verify":true)";
  return text + "}";
}

Result<ExecPlugin> read_plugin(const YAML::Node& exec, const std::string& folder,
                               const Credentials& known) {
  ExecPlugin out;
  out.api_version = text_at(exec, "apiVersion");
  if (out.api_version != "client.authentication.k8s.io/v1" &&
      out.api_version != "client.authentication.k8s.io/v1beta1") {
    return invalid("exec: apiVersion: " + in_quotes(out.api_version) +
                   " is not client.authentication.k8s.io/v1 or v1beta1");
  }
  out.command = text_at(exec, "command");
  if (out.command.empty()) return invalid("exec: command: missing");
  if (out.command.find('/') != std::string::npos) out.command = beside(folder, out.command);
  if (text_at(exec, "interactiveMode") == "Always") {
    return invalid("exec: interactiveMode: Always is not supported, plugins get no terminal");
  }
  out.install_hint = text_at(exec, "installHint");
  const YAML::Node args = exec["args"];
  if (args.IsDefined() && args.IsSequence()) {
    for (const auto& arg : args) out.args.push_back(arg.as<std::string>());
  }
  const YAML::Node env = exec["env"];
  if (env.IsDefined() && env.IsSequence()) {
    for (const auto& entry : env) {
      const YAML::Node one = entry;
      out.env.emplace_back(text_at(one, "name"), text_at(one, "value"));
    }
  }
  if (text_at(exec, "provideClusterInfo") == "true") out.cluster_json = cluster_json(known);
  return out;
}

Status ask_plugin(const YAML::Node& exec, const std::string& folder, const ConfigSource& source,
                  Credentials& out) {
  WEIR_TRY(const ExecPlugin plugin, read_plugin(exec, folder, out));
  WEIR_TRY(const ExecCredential answer, source.run_plugin(plugin));
  out.token = answer.token;
  out.tls.cert_pem = answer.cert_pem;
  out.tls.key_pem = answer.key_pem;
  return Unit{};
}

Status read_user(const YAML::Node& user, const std::string& folder, const ConfigSource& source,
                 Credentials& out) {
  const YAML::Node exec = user["exec"];
  for (const char* key : {"exec", "auth-provider", "username"}) {
    if (user[key].IsDefined() && !(key == std::string_view("exec") && source.run_plugin)) {
      return invalid(std::string(key) +
                     ": not supported, use a token or a "
                     "client certificate");
    }
  }
  if (exec.IsDefined()) return ask_plugin(exec, folder, source, out);
  out.token = text_at(user, "token");
  out.token_file = beside(folder, text_at(user, "tokenFile"));
  WEIR_OK(file_or_data(user, folder, "client-certificate", out.cert_file, out.tls.cert_pem));
  return file_or_data(user, folder, "client-key", out.key_file, out.tls.key_pem);
}

Result<Credentials> from_documents(const std::vector<Document>& documents,
                                   const ConfigSource& source) {
  std::string current = source.context;
  for (const Document& document : documents) {
    if (current.empty()) current = text_at(document.root, "current-context");
  }
  const std::string where = documents.front().path;
  if (current.empty()) return invalid(where + ": current-context: missing");
  std::string folder;
  const auto context = entry(documents, "contexts", "context", current, folder);
  if (!context) return invalid(where + ": contexts: no '" + current + "'");
  Credentials out;
  out.namespace_name = text_at(*context, "namespace");
  const std::string cluster_name = text_at(*context, "cluster");
  const auto cluster = entry(documents, "clusters", "cluster", cluster_name, folder);
  if (!cluster) return invalid(where + ": clusters: no '" + cluster_name + "'");
  if (const auto ok = read_cluster(*cluster, folder, source, out); !ok) {
    return ok.error().with(where + ": clusters[" + cluster_name + "]");
  }
  const std::string user_name = text_at(*context, "user");
  const auto user = entry(documents, "users", "user", user_name, folder);
  if (!user) return invalid(where + ": users: no '" + user_name + "'");
  if (const auto ok = read_user(*user, folder, source, out); !ok) {
    return ok.error().with(where + ": users[" + user_name + "]");
  }
  return out;
}

Result<Credentials> from_files(const std::vector<std::string>& paths, const ConfigSource& source) {
  std::vector<Document> documents;
  std::string missing;
  for (const std::string& path : paths) {
    const auto text = read_text(path);
    if (!text && text.error().code == Code::kNotFound) {
      missing = text.error().message;
      continue;  // as kubectl does with missing files of the list
    }
    if (!text) return text.error();
    try {
      documents.push_back({path, YAML::Load(*text)});
    } catch (const YAML::Exception& e) {
      return invalid(path + ": " + e.what());
    }
    if (!documents.back().root.IsMap()) return invalid(path + ": no kubeconfig");
  }
  if (documents.empty()) return invalid(missing);
  try {
    return from_documents(documents, source);
  } catch (const YAML::Exception& e) {
    return invalid(documents.front().path + ": " + e.what());
  }
}

Result<Credentials> in_cluster(const std::string& host, const std::string& port) {
  Credentials out;
  const bool ipv6 = host.find(':') != std::string::npos && !host.starts_with('[');
  out.server = "https://" + (ipv6 ? "[" + host + "]" : host) + ":" + (port.empty() ? "443" : port);
  out.ca_file = std::string(kPodDir) + "/ca.crt";
  out.token_file = std::string(kPodDir) + "/token";
  if (const auto ns = read_text(std::string(kPodDir) + "/namespace")) {
    out.namespace_name = ns->substr(0, ns->find('\n'));
  }
  return out;
}

std::vector<std::string> split_paths(const std::string& list) {
  std::vector<std::string> paths;
  std::istringstream in(list);
  for (std::string path; std::getline(in, path, ':');) {
    if (!path.empty()) paths.push_back(path);
  }
  return paths;
}

}  // namespace

Result<Credentials> load_credentials(const ConfigSource& source, const Environment& env) {
  if (!source.path.empty()) return from_files({source.path}, source);
  if (const auto paths = split_paths(env("KUBECONFIG")); !paths.empty()) {
    return from_files(paths, source);
  }
  const std::string host = source.context.empty() ? env("KUBERNETES_SERVICE_HOST") : "";
  if (!host.empty()) return in_cluster(host, env("KUBERNETES_SERVICE_PORT"));
  if (const std::string home = env("HOME"); !home.empty()) {
    return from_files({home + "/.kube/config"}, source);
  }
  return invalid("no API server: not in a cluster, and neither --kubeconfig nor KUBECONFIG is set");
}

Result<Credentials> load_credentials(const std::string& path, const Environment& env) {
  ConfigSource source;
  source.path = path;
  return load_credentials(source, env);
}

http::Options transport_options(const Credentials& credentials) {
  http::Options options;
  options.base_url = credentials.server;
  options.ca_file = credentials.ca_file;
  options.cert_file = credentials.cert_file;
  options.key_file = credentials.key_file;
  return options;
}

}  // namespace weir::kube
