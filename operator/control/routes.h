// SPDX-License-Identifier: Apache-2.0
// The calls of the control API: which caller may make them, with which body, and the answer.
// handle() may block on a TokenReview, so it runs on the auth threads. Thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "operator/api/encode.h"
#include "operator/cache/snapshot.h"
#include "operator/control/authenticator.h"
#include "operator/control/hub.h"
#include "worker/http/server.h"
#include "worker/protocol/messages.h"

namespace weir::control_server {

enum class Call : unsigned char { kJoin, kRegister, kPlan, kReport, kTrace };
const char* name(Call call);  // e.g. "join": the last part of the path, also a label of metrics

// Limits of worker/protocol/README.md "Control API".
constexpr std::size_t kMaxJoinBody = 4 * 1024;
constexpr std::size_t kMaxRegisterBody = 2 * 1024 * 1024;
constexpr std::size_t kMaxReportBody = protocol::kMaxReportBytes;
constexpr std::size_t kMaxTraceBody = protocol::kMaxTracePartBytes;
constexpr std::chrono::seconds kMaxWait{50};

// Keeps a part of a trace for users and returns the answer (trace_maps.h).
using KeepTrace = std::function<http::Response(const api::PipelineJob&, const api::TracePart&)>;

struct Route {
  Call call = Call::kJoin;
  std::string namespace_name, job;
  std::string key() const { return namespace_name + "/" + job; }
};
// Nothing if the path is not one of this API.
std::optional<Route> route_of(const std::string& path);

struct RouteParts {
  cache::Cache& cache;
  Hub& hub;
  Authenticator& authenticator;
  std::string seed;                     // Keys::seed
  std::function<bool()> leading;        // whether this replica leads
  std::function<std::string()> leader;  // Lease identity "<pod>_<ip>_<uuid>"; "" = unknown
  int port = 8443;                      // of this replica and of the leader
  std::function<void(int fields)> observe_dropped = {};  // of reports; may be empty
  KeepTrace keep_trace = {};                             // empty: POST /trace is answered 404
};

class Routes {
 public:
  explicit Routes(RouteParts parts) : parts_(std::move(parts)) {}

  // Answers 404, 405, 413 and 503, which need no token. If it returns nothing, call handle(). Does
  // not block.
  std::optional<http::Response> refuse_early(const http::Request& request) const;
  // Calls incoming.proven if the token is right.
  void handle(const http::IncomingRequest& incoming, http::Responder respond) const;

 private:
  struct Caller;  // the job and pod that sent a request
  Result<Caller, http::Response> authorize(const Route& route, const http::Request& request) const;
  http::Response join(const Caller& caller, const http::Request& request) const;
  http::Response take_register(const Caller& caller, const std::string& body) const;
  http::Response take_report(const Caller& caller, const std::string& body) const;
  http::Response take_trace(const Caller& caller, const http::Request& request) const;
  void plan(const Caller& caller, const std::string& path, http::Responder respond) const;
  http::Response to_leader(const std::string& path) const;

  RouteParts parts_;
};

}  // namespace weir::control_server
