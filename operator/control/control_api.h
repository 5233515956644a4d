// SPDX-License-Identifier: Apache-2.0
// The control API as a running server: HTTP threads, auth threads that may block on the API server,
// and a clock thread that ends polls. The rules are in routes.h.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "operator/cache/snapshot.h"
#include "operator/control/authenticator.h"
#include "operator/control/hub.h"
#include "operator/control/routes.h"
#include "worker/base/clock.h"
#include "worker/base/result.h"
#include "worker/http/server.h"

namespace weir::control_server {

struct ControlOptions {
  std::string address;     // "" = all, IPv4 and IPv6
  int port = 8443;         // 0 = any free port
  int leader_port = 8443;  // port of the leader's pod, for redirects
  http::TlsIdentity tls;   // issue_leaf()
  int auth_threads = 2;
};

// All references must outlive the server.
struct ControlParts {
  cache::Cache& cache;
  Hub& hub;
  TokenReviewer& reviewer;
  Clock& clock;
  std::string seed;                     // Keys::seed
  std::function<bool()> leading;        // whether this replica leads
  std::function<std::string()> leader;  // Lease identity "<pod>_<ip>_<uuid>"; "" = unknown
  // For metrics; may be empty. endpoint: "join", "register", "plan", "report", "trace" or "other".
  std::function<void(const char* endpoint, int code)> observe;
  std::function<void(const char* result)> observe_review;
  std::function<void(int fields)> observe_dropped = {};  // from reports: impossible.h
  KeepTrace keep_trace = {};                             // trace_maps.h
};

class ControlApi {
 public:
  virtual ~ControlApi() = default;  // calls stop()
  virtual int port() const = 0;
  virtual void set_tls(const http::TlsIdentity& tls) = 0;  // for new connections
  virtual void stop() = 0;                                 // idempotent
};

// kUnavailable: the port is in use; kInvalid: the certificate is wrong.
Result<std::unique_ptr<ControlApi>> start_control_api(const ControlOptions& options,
                                                      ControlParts parts);

}  // namespace weir::control_server
