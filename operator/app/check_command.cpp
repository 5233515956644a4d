// SPDX-License-Identifier: Apache-2.0
#include "operator/app/check_command.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "operator/kube/auth.h"
#include "operator/kube/client.h"
#include "operator/kube/cpprest_transport.h"
#include "operator/kube/kube_config.h"
#include "worker/base/clock.h"
#include "worker/http/server.h"

namespace weir::operator_app {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kLimit{10};

struct Permission {
  const char *group, *resource, *subresource, *verb;
  bool own_namespace;  // in the operator's namespace, else where jobs are watched
};
// api.md 12.
constexpr Permission kPermissions[] = {
    {"weir.dev", "pipelinejobs", "", "list", false},
    {"weir.dev", "pipelinejobs", "", "watch", false},
    {"weir.dev", "pipelinejobs", "", "delete", false},
    {"weir.dev", "pipelinejobs", "status", "patch", false},
    {"", "pods", "", "list", false},
    {"", "pods", "", "watch", false},
    {"", "pods", "", "create", false},
    {"", "pods", "", "delete", false},
    {"", "services", "", "create", false},
    {"", "services", "", "watch", false},
    {"", "configmaps", "", "create", false},
    {"", "configmaps", "", "patch", false},
    {"", "configmaps", "", "delete", false},
    {"events.k8s.io", "events", "", "create", false},
    {"authentication.k8s.io", "tokenreviews", "", "create", false},
    {"coordination.k8s.io", "leases", "", "create", true},
    {"", "secrets", "", "create", true},
};

class Report {
 public:
  void line(bool good, const std::string& what, const std::string& why = "") {
    std::cout << (good ? "ok       " : "MISSING  ") << what << (why.empty() ? "" : ": " + why)
              << "\n";
    missing_ += good ? 0 : 1;
  }
  // Worth knowing, not missing.
  void note(const std::string& what) { std::cout << "note     " << what << "\n"; }
  int missing() const { return missing_; }

 private:
  int missing_ = 0;
};

bool allowed(kube::Client& client, const Permission& permission, const std::string& ns,
             std::string& why) {
  const json review = {{"apiVersion", "authorization.k8s.io/v1"},
                       {"kind", "SelfSubjectAccessReview"},
                       {"spec",
                        {{"resourceAttributes",
                          {{"group", permission.group},
                           {"resource", permission.resource},
                           {"subresource", permission.subresource},
                           {"verb", permission.verb},
                           {"namespace", ns}}}}}};
  const auto answer = client.create(kube::access_reviews(), "", review.dump());
  if (!answer) {
    why = answer.error().message;
    return false;
  }
  const json body = json::parse(*answer, nullptr, false);
  const json status = body.is_object() ? body.value("status", json::object()) : json::object();
  return status.is_object() && status.value("allowed", false);
}

void check_prometheus(const Options& options, Clock& clock, Report& report) {
  if (options.prometheus_url.empty()) {
    report.line(false, "Prometheus", "not configured (--prometheus-url): jobs are not adapted");
    return;
  }
  http::Options to;
  to.base_url = options.prometheus_url;
  to.ca_file = options.prometheus_ca_file;
  const auto transport = kube::make_cpprest_transport(to);
  kube::TokenSource token("", options.prometheus_bearer_token_file, clock);
  http::Request request;
  request.path = "/api/v1/query?query=" + http::percent_encoded("count(weir_link_bytes_total)");
  if (!options.prometheus_bearer_token_file.empty()) {
    request.headers.emplace_back("Authorization", "Bearer " + token.token());
  }
  const auto answer = transport->send(request, clock.now() + kLimit, {});
  if (!answer) return report.line(false, "Prometheus", answer.error().message);
  if (answer->status != 200) {
    return report.line(false, "Prometheus", "HTTP " + std::to_string(answer->status));
  }
  report.line(true, "Prometheus answers");
  const json body = json::parse(answer->body, nullptr, false);
  const json* result = nullptr;
  if (body.is_object() && body.contains("data") && body["data"].is_object() &&
      body["data"].contains("result")) {
    result = &body["data"]["result"];
  }
  if (result != nullptr && result->is_array() && !result->empty()) {
    report.line(true, "weir_link_bytes_total is scraped");
  } else {
    report.note(
        "weir_link_bytes_total has no series: right as long as no job trains, else see the "
        "annotations prometheus.io/scrape of its pods");
  }
}

}  // namespace

int check_command(const Options& options) {
  SystemClock clock;
  kube::init_http_threads();
  set_log(LogLevel::kWarn, options.log_format);
  const auto credentials = kube::load_credentials(options.kubeconfig, [](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return std::string(value == nullptr ? "" : value);
  });
  if (!credentials) {
    std::cerr << credentials.error().message << "\n";
    return 2;
  }
  const auto transport =
      kube::make_cpprest_transport(kube::transport_options(*credentials), credentials->tls);
  kube::TokenSource token(credentials->token, credentials->token_file, clock);
  const auto client = kube::make_client(*transport, token, clock, {.request_limit = kLimit});
  const std::string jobs_in =
      options.watch_namespaces.empty() ? "" : options.watch_namespaces.front();
  const std::string own =
      !options.namespace_name.empty() ? options.namespace_name : credentials->namespace_name;
  Report report;
  const auto served = client->list(kube::pipeline_jobs(), jobs_in, "?limit=1");
  if (!served && served.error().http_status == 0) {
    std::cerr << "API server " << credentials->server << ": " << served.error().message << "\n";
    return 2;
  }
  report.line(served || served.error().http_status == 403, "CRD pipelinejobs.weir.dev is served",
              served ? "" : served.error().message);
  for (const Permission& permission : kPermissions) {
    std::string why;
    const std::string slash = *permission.subresource != '\0' ? "/" : "";
    const bool good = allowed(*client, permission, permission.own_namespace ? own : jobs_in, why);
    report.line(good,
                std::string("permission to ") + permission.verb + " " + permission.resource +
                    slash + permission.subresource,
                why);
  }
  check_prometheus(options, clock, report);
  return report.missing() == 0 ? 0 : 1;
}

}  // namespace weir::operator_app
