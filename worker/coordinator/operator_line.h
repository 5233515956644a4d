// SPDX-License-Identifier: Apache-2.0
// The connection to the operator's control API: /join for any worker, and for the coordinator a
// PlanSource that registers, keeps a long poll for plans open and posts reports. It follows one
// 307, retries with jitter and re-reads the token. Errors never end training.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "worker/base/clock.h"
#include "worker/base/result.h"
#include "worker/coordinator/coordinator.h"
#include "worker/http/transport.h"
#include "worker/protocol/messages.h"

namespace weir::coordinator {

struct LineOptions {
  std::string url;  // WEIR_CONTROL_URL, "https://weir-operator.weir-system.svc:8443"
  // The operator may move: the content of this file, re-read for each request, replaces `url`. ""
  // or a missing file: `url` is used.
  std::string url_file;
  std::string token_file;  // re-read for each request
  std::string ca_file;
  std::string job_namespace, job_name, job_uid;
};

// Makes a Transport for a base URL. The real one is http::make_beast_transport with tls_name = the
// host of the service's URL, because a 307 names a pod by its IP. Its request_idle must exceed the
// long poll (50 s).
using TransportFactory = std::function<Result<std::unique_ptr<http::Transport>>(
    const std::string& base_url, const std::string& service_url)>;

// Blocks until the key is there, the job is gone (kGone), no common protocol version exists
// (kInvalid), or stop is requested.
Result<protocol::JoinAnswer> join(const LineOptions& options, const TransportFactory& factory,
                                  Clock& clock, const protocol::Join& body, std::stop_token stop);

// One request of the same kind, which the operator answers within some seconds or not at all:
// body.lost_term says that its sender does not hear the coordinator of that term.
Result<protocol::JoinAnswer> claim(const LineOptions& options, const TransportFactory& factory,
                                   Clock& clock, const protocol::Join& body, std::stop_token stop);

std::unique_ptr<PlanSource> make_operator_source(const LineOptions& options,
                                                 TransportFactory factory, Clock& clock);

}  // namespace weir::coordinator
