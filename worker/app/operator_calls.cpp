// SPDX-License-Identifier: Apache-2.0
#include "worker/app/operator_calls.h"

#include <memory>
#include <string>
#include <utility>

#include "worker/app/network.h"
#include "worker/base/host_port.h"
#include "worker/http/beast_transport.h"

namespace weir::app {
namespace {

protocol::Join join_body(const State& state) {
  const Options& o = state.options;
  return {.job_uid = o.job_uid,
          .pod = o.pod,
          .pod_uid = o.pod_uid,
          .worker_index = o.worker_index,
          .attempt = o.attempt};
}

}  // namespace

coordinator::LineOptions line_options(const Options& o) {
  return {.url = o.control_url,
          .url_file = o.control_dir + "/url",
          .token_file = o.control_dir + "/token",
          .ca_file = o.control_dir + "/ca.crt",
          .job_namespace = o.job_namespace,
          .job_name = o.job_name,
          .job_uid = o.job_uid};
}

// A redirect names a pod by its IP, but the certificate is that of the Service.
coordinator::TransportFactory transport_factory(const Options& o) {
  return [ca = o.control_dir + "/ca.crt"](
             const std::string& base_url,
             const std::string& service_url) -> Result<std::unique_ptr<http::Transport>> {
    const bool tls = base_url.starts_with("https://");
    return http::make_beast_transport({.base_url = base_url,
                                       .ca_file = tls ? ca : "",
                                       .tls_name = tls ? host_of(service_url) : ""});
  };
}

Result<protocol::JoinAnswer> join(const State& state, std::stop_token stop) {
  SystemClock clock;
  return coordinator::join(line_options(state.options), transport_factory(state.options), clock,
                           join_body(state), std::move(stop));
}

Result<protocol::JoinAnswer> claim(const State& state, std::int64_t lost_term,
                                   std::stop_token stop) {
  SystemClock clock;
  protocol::Join body = join_body(state);
  body.lost_term = lost_term;
  return coordinator::claim(line_options(state.options), transport_factory(state.options), clock,
                            body, std::move(stop));
}

}  // namespace weir::app
