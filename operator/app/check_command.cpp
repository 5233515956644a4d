// SPDX-License-Identifier: Apache-2.0
#include "operator/app/check_command.h"

#include <cstdlib>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/app/prometheus_headers.h"
#include "operator/control/job_key.h"
#include "operator/control/own_certificate.h"
#include "operator/kube/auth.h"
#include "operator/kube/cpprest_transport.h"
#include "operator/kube/kube_config.h"
#include "operator/metrics/answer.h"
#include "worker/base/time_text.h"
#include "worker/http/server.h"
#include "worker/http/text.h"

namespace weir::operator_app {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kLimit{10};
constexpr auto kVolcano = "scheduling.volcano.sh";

enum class Where : unsigned char { kJobs, kOwn, kCluster };

struct Permission {
  const char *group, *resource;
  std::vector<const char*> verbs;
  Where where = Where::kJobs;
  std::string name;               // limited to this object; "" = all
  const char* without = nullptr;  // of an optional permission: what is lost without it
};

// The permissions of helm/weir/README.md "RBAC".
std::vector<Permission> permissions(const Options& options) {
  return {
      {"weir.dev", "pipelinejobs", {"list", "watch", "delete"}},
      {"weir.dev", "pipelinejobs/status", {"patch"}},
      {"weir.dev", "pipelinejobs/finalizers", {"update"}},
      {"", "pods", {"get", "list", "watch", "create", "patch", "delete"}},
      {"", "services", {"get", "list", "watch", "create"}},
      {"", "configmaps", {"get", "list", "watch", "create", "patch", "delete"}},
      {"events.k8s.io", "events", {"create", "patch", "list"}},
      {"authentication.k8s.io", "tokenreviews", {"create"}, Where::kCluster},
      {"coordination.k8s.io", "leases", {"create"}, Where::kOwn},
      {"coordination.k8s.io", "leases", {"get", "update"}, Where::kOwn, options.name},
      {"", "secrets", {"create"}, Where::kOwn},
      {"", "secrets", {"get", "update"}, Where::kOwn, options.keys_secret_name()},
      {"", "nodes", {"list", "watch"}, Where::kCluster, "", "plans use no topology"},
      {kVolcano,
       "podgroups",
       {"get", "list", "watch", "create", "patch", "delete"},
       Where::kJobs,
       "",
       "no gangs of Volcano"},
  };
}

class Report {
 public:
  explicit Report(std::ostream& out) : out_(out) {}
  void line(bool good, const std::string& what, const std::string& why = "") {
    out_ << (good ? "ok       " : "MISSING  ") << what << (why.empty() ? "" : ": " + why) << "\n";
    missing_ += good ? 0 : 1;
  }
  // A fact that may matter, although nothing is missing.
  void note(const std::string& what) { out_ << "note     " << what << "\n"; }
  int missing() const { return missing_; }

 private:
  std::ostream& out_;
  int missing_ = 0;
};

bool allowed(kube::Client& client, const Permission& permission, const char* verb,
             const std::string& ns, std::string& why) {
  const std::string whole = permission.resource;
  const auto slash = whole.find('/');
  json attributes{{"group", permission.group},
                  {"resource", whole.substr(0, slash)},
                  {"verb", verb},
                  {"namespace", ns},
                  {"name", permission.name}};
  if (slash != whole.npos) attributes["subresource"] = whole.substr(slash + 1);
  const json review = {{"apiVersion", "authorization.k8s.io/v1"},
                       {"kind", "SelfSubjectAccessReview"},
                       {"spec", {{"resourceAttributes", attributes}}}};
  const auto answer = client.create(kube::access_reviews(), "", review.dump());
  if (!answer) {
    why = answer.error().message;
    return false;
  }
  const json body = json::parse(*answer, nullptr, false);
  const json status = body.is_object() ? body.value("status", json::object()) : json::object();
  return status.is_object() && status.value("allowed", false);
}

void check_permission(kube::Client& client, const Permission& permission, const std::string& ns,
                      Report& report) {
  std::string granted, refused, why;
  for (const char* verb : permission.verbs) {
    std::string& list = allowed(client, permission, verb, ns, why) ? granted : refused;
    list += (list.empty() ? "" : ", ") + std::string(verb);
  }
  const std::string where = permission.where == Where::kCluster ? ""
                            : ns.empty()                        ? " in all namespaces"
                                                                : " in " + ns;
  const std::string name = permission.name.empty() ? "" : " " + permission.name;
  const std::string what = " " + std::string(permission.resource) + name + where;
  if (refused.empty()) return report.line(true, "may " + granted + what);
  if (permission.without != nullptr) {
    return report.note("may not " + refused + what + ": " + permission.without);
  }
  report.line(false, "may not " + refused + what, why);
}

void check_permissions(const Options& options, kube::Client& client, Report& report) {
  std::vector<std::string> jobs_in = options.watch_namespaces;
  if (jobs_in.empty()) jobs_in = {""};
  for (const Permission& permission : permissions(options)) {
    switch (permission.where) {
      case Where::kJobs:
        for (const std::string& ns : jobs_in) check_permission(client, permission, ns, report);
        break;
      case Where::kOwn:
        check_permission(client, permission, options.namespace_name, report);
        break;
      case Where::kCluster:
        check_permission(client, permission, "", report);
        break;
    }
  }
}

// Number of series in Prometheus' answer, or why it has none.
Result<std::size_t> series_in(const Result<http::Response>& answer) {
  if (!answer && answer.error().code == Code::kTimeout) {
    return Error{Code::kTimeout, "no answer in time (" + std::to_string(kLimit.count()) + " s)"};
  }
  if (!answer) return answer.error();
  if (answer->status != 200) return Error{Code::kUnavailable, metrics::refusal(*answer)};
  WEIR_TRY(const json document, metrics::decode_result(answer->body, "vector"));
  return document["data"]["result"].size();
}

void check_prometheus(const Options& options, const CheckParts& parts, Report& report) {
  if (parts.prometheus == nullptr) {
    return report.note("Prometheus is not configured (--prometheus-url): jobs are not adapted");
  }
  http::Request request;
  request.path = "/api/v1/query?query=" + http::percent_encoded("count(weir_link_bytes_total)");
  if (parts.headers) request.headers = parts.headers();
  const auto series = series_in(parts.prometheus->send(request, parts.clock.now() + kLimit, {}));
  const std::string what = "Prometheus at " + http::shown_url(options.prometheus_url);
  if (!series) return report.line(false, what, series.error().message);
  report.line(true, what + " answers");
  if (*series > 0) return report.line(true, "weir_link_bytes_total is scraped");
  report.note(
      "weir_link_bytes_total has no series: if a job trains now, check that Prometheus honours the "
      "annotation prometheus.io/scrape of its pods");
}

// Checks the certificate files that `run` would use, for the name that workers connect to.
void check_certificate(const Options& options, const CheckParts& parts, Report& report) {
  if (options.control_tls_dir.empty() || options.control_address.empty()) return;
  const std::string name = options.control_address.substr(0, options.control_address.rfind(':'));
  const auto own =
      control_server::read_own_certificate(options.control_tls_dir, name, parts.clock.system_now());
  if (!own) return report.line(false, "own certificate", own.error().message);
  report.line(true, "own certificate in " + options.control_tls_dir + " is for " + name +
                        ", until " + to_rfc3339(own->until));
}

// The port works if it answers HTTP over TLS with a certificate that workers trust. Any answer will
// do, so the request is for a path that the API does not have.
void check_control(const Options& options, const CheckParts& parts, Report& report) {
  if (options.control_address.empty() || !parts.control) return;
  const auto keys =
      control_server::read_keys(parts.client, {options.namespace_name, options.keys_secret_name()});
  const auto transport = parts.control(keys ? control_server::bundle_of(keys->keys) : "");
  const auto answer =
      transport->send({http::Method::kGet, "/", {}, ""}, parts.clock.now() + kLimit, {});
  const std::string what = "control API at " + options.control_address;
  if (!answer) return report.line(false, what, answer.error().message);
  report.line(true, what + " answers");
  if (!keys) report.note("its certificate was not verified: " + keys.error().message);
}

}  // namespace

int check_cluster(const Options& options, const CheckParts& parts) {
  Report report(parts.out);
  const std::string jobs_in =
      options.watch_namespaces.empty() ? "" : options.watch_namespaces.front();
  const auto served = parts.client.list(kube::pipeline_jobs(), jobs_in, "?limit=1");
  if (!served && served.error().http_status == 0) {
    const std::string at =
        parts.api_server.empty() ? "" : " at " + http::shown_url(parts.api_server);
    parts.out << "MISSING  API server" << at << ": " << served.error().message << "\n";
    return 2;
  }
  const std::string crd = "CRD pipelinejobs.weir.dev";
  if (served) {
    report.line(true, crd + " is served");
  } else if (served.error().http_status == 403) {
    report.note(crd + ": unknown without the permission to list jobs");
  } else {
    report.line(false, crd,
                served.error().http_status == 404 ? "not installed" : served.error().message);
  }
  check_permissions(options, parts.client, report);
  check_prometheus(options, parts, report);
  check_certificate(options, parts, report);
  check_control(options, parts, report);
  return report.missing() == 0 ? 0 : 1;
}

int check_command(const Options& given) {
  SystemClock clock;
  kube::init_http_threads();
  set_log(LogLevel::kWarn, given.log_format);
  const auto credentials = kube::load_credentials(given.kubeconfig, [](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return std::string(value == nullptr ? "" : value);
  });
  if (!credentials) {
    std::cerr << credentials.error().message << "\n";
    return 2;
  }
  Options options = given;
  if (options.namespace_name.empty()) options.namespace_name = credentials->namespace_name;
  if (options.namespace_name.empty()) options.namespace_name = "default";
  try {
    const auto api =
        kube::make_cpprest_transport(kube::transport_options(*credentials), credentials->tls);
    std::unique_ptr<http::Transport> prometheus;
    if (!options.prometheus_url.empty()) {
      http::Options to;
      to.base_url = options.prometheus_url;
      to.ca_file = options.prometheus_ca_file;
      prometheus = kube::make_cpprest_transport(to);
    }
    kube::TokenSource token(credentials->token, credentials->token_file, clock);
    const auto client = kube::make_client(*api, token, clock, {.request_limit = kLimit});
    return check_cluster(
        options, {*client, clock, std::cout, prometheus.get(), prometheus_headers(options, clock),
                  [&options](const std::string& ca_pem) {
                    http::Options to;
                    to.base_url = "https://" + options.control_address;
                    return kube::make_cpprest_transport(
                        to, {.ca_pem = ca_pem, .insecure = ca_pem.empty()});
                  },
                  credentials->server});
  } catch (const std::exception& e) {  // cpprestsdk throws for a malformed URL
    std::cerr << "malformed URL: " << e.what() << "\n";
    return 2;
  }
}

}  // namespace weir::operator_app
