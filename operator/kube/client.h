// SPDX-License-Identifier: Apache-2.0
// Typed verbs of the API server over one http::Transport. The client adds token, user agent and a
// limit of requests per second (operator/kube/README.md "Requests"). Thread-safe; blocks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "worker/base/clock.h"
#include "worker/base/result.h"
#include "worker/http/transport.h"

namespace weir::kube {

// Why a request failed. Decisions depend on `reason`, not on the HTTP status alone.
struct ApiError {
  int http_status = 0;  // 0 = no answer, see code
  Code code = Code::kUnavailable;
  std::string reason;  // AlreadyExists, Conflict, NotFound, Invalid, Forbidden, Expired ...
  std::string message;
  std::vector<std::string> causes;  // "field: message"
  std::optional<std::chrono::seconds> retry_after;
  Error to_error() const { return {code, message}; }
};
template <class T>
using ApiResult = Result<T, ApiError>;

// Names a resource: {"", "v1", "pods"}, {"weir.dev", "v1alpha1", "pipelinejobs"}.
struct Resource {
  std::string group, version, plural;
};
const Resource& pods();
const Resource& services();
const Resource& config_maps();
const Resource& nodes();
const Resource& secrets();
const Resource& leases();
const Resource& events();  // events.k8s.io/v1
const Resource& pipeline_jobs();
const Resource& token_reviews();
const Resource& crds();
const Resource& volcano_pod_groups();

const Resource& access_reviews();  // SelfSubjectAccessReview

class Client {
 public:
  virtual ~Client() = default;
  // Verbs with a text as result return the JSON of the object or list.
  virtual ApiResult<std::string> get(const Resource&, const std::string& ns,
                                     const std::string& name) = 0;
  // query: such as "?labelSelector=...&resourceVersion=0", percent-encoded, or "".
  virtual ApiResult<std::string> list(const Resource&, const std::string& ns,
                                      const std::string& query) = 0;
  // With fieldValidation=Strict.
  virtual ApiResult<std::string> create(const Resource&, const std::string& ns,
                                        const std::string& body, bool dry_run = false) = 0;
  virtual ApiResult<std::string> update(const Resource&, const std::string& ns,
                                        const std::string& name, const std::string& body) = 0;
  // Server-side apply with force to a subresource ("status" or "").
  virtual ApiResult<std::string> apply(const Resource&, const std::string& ns,
                                       const std::string& name, const std::string& subresource,
                                       const std::string& field_manager,
                                       const std::string& body) = 0;
  virtual ApiResult<std::string> merge_patch(const Resource&, const std::string& ns,
                                             const std::string& name, const std::string& body) = 0;
  // 404 is success. uid "" = no precondition.
  virtual ApiResult<Unit> remove(const Resource&, const std::string& ns, const std::string& name,
                                 const std::string& uid) = 0;
  // Calls on_line with each JSON line until the server ends the watch, stop, or an error.
  virtual ApiResult<Unit> watch(const Resource&, const std::string& ns, const std::string& query,
                                std::stop_token stop,
                                const std::function<void(std::string_view)>& on_line) = 0;
  // Calls on_line with each line of a subresource that is a text, such as the log of a pod, until
  // the server ends it, stop, or an error. The last line needs no newline at its end.
  virtual ApiResult<Unit> lines(const Resource&, const std::string& ns, const std::string& name,
                                const std::string& subresource, const std::string& query,
                                std::stop_token stop,
                                const std::function<void(std::string_view)>& on_line) = 0;
};

class TokenSource;  // auth.h

struct ClientOptions {
  double requests_per_second = 100, burst = 200;  // watches are not counted
  std::chrono::seconds request_limit{60};         // whole request
  std::chrono::seconds create_limit{30};
  std::string user_agent = "weir-operator";
  std::stop_token stop;  // ends every request
  // For metrics: called after each request, but not for watches. http_status 0 = no answer.
  std::function<void(const char* method, int http_status, std::chrono::nanoseconds)> observe;
  // Called with the header Date of each answer, but not for watches (server_clock.h).
  std::function<void(const std::string& date, SteadyTime sent, SteadyTime received)> on_date;
};
// transport, token and clock must outlive the client.
std::unique_ptr<Client> make_client(http::Transport& transport, TokenSource& token, Clock& clock,
                                    ClientOptions options);

}  // namespace weir::kube
