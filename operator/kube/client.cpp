// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/client.h"

#include <utility>

#include "operator/kube/auth.h"
#include "operator/kube/rate_limit.h"
#include "operator/kube/status_error.h"
#include "worker/base/log.h"
#include "worker/http/line_splitter.h"
#include "worker/http/server.h"
#include "worker/http/text.h"

namespace weir::kube {
namespace {

using http::Method;
using http::Request;
using http::Response;

constexpr std::size_t kMaxFrame = 8U << 20;  // bytes of one streamed line
constexpr int kMaxThrottled = 4;             // waits for a 429 or 503 per request
constexpr std::chrono::seconds kMaxRetryAfter{30};
constexpr std::chrono::seconds kDefaultRetryAfter{1};

std::string path_to(const Resource& resource, const std::string& ns, const std::string& name = "",
                    const std::string& subresource = "") {
  std::string path = resource.group.empty() ? "/api/" : "/apis/" + resource.group + "/";
  path += resource.version;
  if (!ns.empty()) path += "/namespaces/" + http::percent_encoded(ns);
  path += "/" + resource.plural;
  if (!name.empty()) path += "/" + http::percent_encoded(name);
  if (!subresource.empty()) path += "/" + subresource;
  return path;
}

// Logs which limit of the API server's priority and fairness the request has hit.
void log_throttled(const Request& request, const Response& response) {
  std::string level;
  for (const auto& [name, value] : response.headers) {
    if (name.starts_with("X-Kubernetes-PF-") || name.starts_with("X-Kubernetes-Pf-")) {
      level += name + "=" + value + " ";
    }
  }
  log_warn("kube", "the API server asks to wait",
           {{"method", method_name(request.method)},
            {"path", request.path},
            {"status", response.status},
            {"flow", level}});
}

class ApiClient final : public Client {
 public:
  ApiClient(http::Transport& transport, TokenSource& token, Clock& clock, ClientOptions options)
      : transport_(transport),
        token_(token),
        clock_(clock),
        options_(std::move(options)),
        budget_(options_.requests_per_second, options_.burst) {}

  ApiResult<std::string> get(const Resource& resource, const std::string& ns,
                             const std::string& name) override {
    return send({Method::kGet, path_to(resource, ns, name), {}, ""}, options_.request_limit);
  }
  ApiResult<std::string> list(const Resource& resource, const std::string& ns,
                              const std::string& query) override {
    return send({Method::kGet, path_to(resource, ns) + query, {}, ""}, options_.request_limit);
  }
  ApiResult<std::string> create(const Resource& resource, const std::string& ns,
                                const std::string& body, bool dry_run) override {
    const char* query = dry_run ? "?fieldValidation=Strict&dryRun=All" : "?fieldValidation=Strict";
    return send({Method::kPost, path_to(resource, ns) + query, json_body(), body},
                options_.create_limit);
  }
  ApiResult<std::string> update(const Resource& resource, const std::string& ns,
                                const std::string& name, const std::string& body) override {
    return send({Method::kPut, path_to(resource, ns, name), json_body(), body},
                options_.request_limit);
  }
  ApiResult<std::string> apply(const Resource& resource, const std::string& ns,
                               const std::string& name, const std::string& subresource,
                               const std::string& field_manager, const std::string& body) override {
    const std::string query = "?force=true&fieldManager=" + http::percent_encoded(field_manager);
    return send({Method::kPatch,
                 path_to(resource, ns, name, subresource) + query,
                 {{"Content-Type", "application/apply-patch+yaml"}},
                 body},
                options_.request_limit);
  }
  ApiResult<std::string> merge_patch(const Resource& resource, const std::string& ns,
                                     const std::string& name, const std::string& body) override {
    return send({Method::kPatch,
                 path_to(resource, ns, name),
                 {{"Content-Type", "application/merge-patch+json"}},
                 body},
                options_.request_limit);
  }
  ApiResult<Unit> remove(const Resource& resource, const std::string& ns, const std::string& name,
                         const std::string& uid) override {
    std::string body =
        R"({"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background")";
    if (!uid.empty()) body += R"(,"preconditions":{"uid":)" + json_quoted(uid) + "}";
    const auto answer =
        send({Method::kDelete, path_to(resource, ns, name), json_body(), body + "}"},
             options_.request_limit);
    if (answer || answer.error().http_status == 404) return Unit{};
    return answer.error();
  }
  ApiResult<Unit> watch(const Resource& resource, const std::string& ns, const std::string& query,
                        std::stop_token stop,
                        const std::function<void(std::string_view)>& on_line) override {
    return stream_lines(path_to(resource, ns) + query, std::move(stop), on_line);
  }
  ApiResult<Unit> lines(const Resource& resource, const std::string& ns, const std::string& name,
                        const std::string& subresource, const std::string& query,
                        std::stop_token stop,
                        const std::function<void(std::string_view)>& on_line) override {
    std::string rest;  // the end of the text, if it has no newline
    auto answer = stream_lines(path_to(resource, ns, name, subresource) + query, std::move(stop),
                               on_line, &rest);
    if (!rest.empty()) on_line(rest);
    return answer;
  }

 private:
  static http::Headers json_body() { return {{"Content-Type", "application/json"}}; }

  void add_headers(Request& request) {
    request.headers.emplace_back("Accept", "application/json");
    request.headers.emplace_back("User-Agent", options_.user_agent);
    if (const std::string token = token_.token(); !token.empty()) {
      request.headers.emplace_back("Authorization", "Bearer " + token);
    }
  }

  ApiResult<Unit> stream_lines(std::string path, std::stop_token stop,
                               const std::function<void(std::string_view)>& on_line,
                               std::string* rest = nullptr);
  ApiResult<std::string> send(Request request, std::chrono::seconds limit);
  ApiResult<Response> send_once(Request request, http::Deadline deadline);

  http::Transport& transport_;
  TokenSource& token_;
  Clock& clock_;
  const ClientOptions options_;
  RateLimit budget_;
};

ApiResult<Response> ApiClient::send_once(Request request, http::Deadline deadline) {
  if (!clock_.sleep_until(budget_.take(clock_.now()), options_.stop)) {
    return transport_error({Code::kCancelled, "stopped"});
  }
  add_headers(request);
  const SteadyTime begin = clock_.now();
  auto answer = transport_.send(request, deadline, options_.stop);
  if (options_.observe) {
    options_.observe(method_name(request.method), answer ? answer->status : 0,
                     clock_.now() - begin);
  }
  if (!answer) return transport_error(answer.error());
  if (options_.on_date)
    options_.on_date(http::header_value(answer->headers, "Date"), begin, clock_.now());
  return *std::move(answer);
}

ApiResult<std::string> ApiClient::send(Request request, std::chrono::seconds limit) {
  const SteadyTime deadline = clock_.now() + limit;
  bool token_read_again = false;
  for (int throttled = 0;;) {
    auto answer = send_once(request, deadline);
    if (!answer) return answer.error();
    if (answer->status >= 200 && answer->status < 300) return std::move(answer->body);
    const ApiError error = decode_status_error(*answer);
    if (answer->status == 401 && !token_read_again && token_.refused()) {
      token_read_again = true;
      continue;
    }
    // The server has not executed a request that it answered with 429, or with 503 and Retry-After.
    const bool wait = answer->status == 429 || (answer->status == 503 && error.retry_after);
    if (!wait || ++throttled > kMaxThrottled) return error;
    log_throttled(request, *answer);
    const SteadyTime again =
        clock_.now() + std::min(error.retry_after.value_or(kDefaultRetryAfter), kMaxRetryAfter);
    if (again > deadline || !clock_.sleep_until(again, options_.stop)) return error;
  }
}

// rest: if it is given, it becomes the text behind the last newline.
ApiResult<Unit> ApiClient::stream_lines(std::string path, std::stop_token stop,
                                        const std::function<void(std::string_view)>& on_line,
                                        std::string* rest) {
  Request request{Method::kGet, std::move(path), {}, ""};
  add_headers(request);
  http::LineSplitter splitter(kMaxFrame);
  bool too_long = false;
  std::stop_source ours;  // our own reason to end: a frame above the limit
  const std::stop_callback forward(stop, [&ours] { ours.request_stop(); });
  const auto answer = transport_.stream(request, ours.get_token(), [&](std::string_view bytes) {
    if (too_long || splitter.feed(bytes, on_line)) return;
    too_long = true;
    ours.request_stop();
  });
  if (rest != nullptr) *rest = splitter.rest();
  if (too_long) return transport_error({Code::kInvalid, "a line is above 8 MiB"});
  if (!answer) return transport_error(answer.error());
  if (answer->status >= 200 && answer->status < 300) return Unit{};
  if (answer->status == 401) token_.refused();
  return decode_status_error(*answer);
}

}  // namespace

const Resource& pods() {
  static const Resource resource{"", "v1", "pods"};
  return resource;
}
const Resource& services() {
  static const Resource resource{"", "v1", "services"};
  return resource;
}
const Resource& config_maps() {
  static const Resource resource{"", "v1", "configmaps"};
  return resource;
}
const Resource& nodes() {
  static const Resource resource{"", "v1", "nodes"};
  return resource;
}
const Resource& secrets() {
  static const Resource resource{"", "v1", "secrets"};
  return resource;
}
const Resource& leases() {
  static const Resource resource{"coordination.k8s.io", "v1", "leases"};
  return resource;
}
const Resource& events() {
  static const Resource resource{"events.k8s.io", "v1", "events"};
  return resource;
}
const Resource& pipeline_jobs() {
  static const Resource resource{"weir.dev", "v1alpha1", "pipelinejobs"};
  return resource;
}
const Resource& token_reviews() {
  static const Resource resource{"authentication.k8s.io", "v1", "tokenreviews"};
  return resource;
}
const Resource& access_reviews() {
  static const Resource resource{"authorization.k8s.io", "v1", "selfsubjectaccessreviews"};
  return resource;
}
const Resource& crds() {
  static const Resource resource{"apiextensions.k8s.io", "v1", "customresourcedefinitions"};
  return resource;
}
const Resource& volcano_pod_groups() {
  static const Resource resource{"scheduling.volcano.sh", "v1beta1", "podgroups"};
  return resource;
}

std::unique_ptr<Client> make_client(http::Transport& transport, TokenSource& token, Clock& clock,
                                    ClientOptions options) {
  return std::make_unique<ApiClient>(transport, token, clock, std::move(options));
}

}  // namespace weir::kube
