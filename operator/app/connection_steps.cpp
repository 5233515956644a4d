// SPDX-License-Identifier: Apache-2.0
// First steps: from the log to a client of an API server that serves our CRD.
#include <cstdlib>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "operator/app/health.h"
#include "operator/app/run_state.h"
#include "operator/app/version.h"
#include "worker/base/digest.h"

namespace weir::operator_app {
namespace {

constexpr std::chrono::seconds kProbeEvery{5};
constexpr std::chrono::minutes kUnreachable{2};  // then the process exits
constexpr std::chrono::seconds kLeaseRequest{5};

std::string environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "weir-operator";
}

// Blocks the signals in this thread and in those that it starts later. One thread waits for them.
Status catch_signals(RunState& state) {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGTERM);
  sigaddset(&wanted, SIGINT);
  if (pthread_sigmask(SIG_BLOCK, &wanted, nullptr) != 0) {
    return Error{Code::kInternal, "cannot block signals"};
  }
  state.signals = std::jthread([&state, wanted](const std::stop_token& stop) {
    const timespec pause{.tv_sec = 0, .tv_nsec = 500'000'000};
    while (!stop.stop_requested()) {
      if (const int number = sigtimedwait(&wanted, nullptr, &pause); number > 0) {
        log_info("app", "stopping", {{"signal", number}});
        state.stop.request_stop();
      }
    }
  });
  return Unit{};
}

Status read_credentials(RunState& state) {
  WEIR_TRY(kube::Credentials credentials,
           kube::load_credentials(state.options.kubeconfig, environment));
  state.namespace_name = !state.options.namespace_name.empty() ? state.options.namespace_name
                         : !credentials.namespace_name.empty() ? credentials.namespace_name
                                                               : "default";
  const std::string pod = state.options.pod_name.empty() ? host_name() : state.options.pod_name;
  const std::string ip = state.options.pod_ip.empty() ? "127.0.0.1" : state.options.pod_ip;
  state.identity = pod + "_" + ip + "_" + to_hex(random_bytes(8));
  state.scopes = state.options.watch_namespaces;
  if (state.scopes.empty()) state.scopes = {""};
  log_info("app", "starting",
           {{"version", kVersion},
            {"server", credentials.server},
            {"namespace", state.namespace_name},
            {"identity", state.identity}});
  state.credentials = std::move(credentials);
  return Unit{};
}

// cpprestsdk throws for a malformed URL. It loads certificates only when it connects.
Status make_transports(RunState& state) {
  try {
    const http::Options options = kube::transport_options(*state.credentials);
    state.api = kube::make_cpprest_transport(options, state.credentials->tls);
    http::Options lease = options;
    lease.request_idle = kLeaseRequest;
    state.lease_api = kube::make_cpprest_transport(lease, state.credentials->tls);
    if (state.options.prometheus_url.empty()) return Unit{};
    http::Options prometheus;
    prometheus.base_url = state.options.prometheus_url;
    prometheus.ca_file = state.options.prometheus_ca_file;
    state.prometheus = kube::make_cpprest_transport(prometheus);
  } catch (const std::exception& e) {
    return invalid("malformed URL of the API server or of Prometheus: " + std::string(e.what()));
  }
  return Unit{};
}

Status make_clients(RunState& state) {
  const kube::Credentials& credentials = *state.credentials;
  state.token =
      std::make_unique<kube::TokenSource>(credentials.token, credentials.token_file, state.clock);
  kube::ClientOptions options;
  options.requests_per_second = state.options.kube_api_qps;
  options.burst = state.options.kube_api_burst;
  options.user_agent = std::string("weir-operator/") + kVersion;
  options.stop = state.requests_stop.get_token();
  options.observe = client_observer(*state.metrics);
  options.on_date = [&state](const std::string& date, SteadyTime sent, SteadyTime received) {
    state.clock.saw(date, sent, received);
  };
  state.client = kube::make_client(*state.api, *state.token, state.clock, options);
  options.request_limit = options.create_limit = kLeaseRequest;
  options.stop = {};  // the lease is released after all other requests have been stopped
  state.lease_client = kube::make_client(*state.lease_api, *state.token, state.clock, options);
  return Unit{};
}

Status open_metrics(RunState& state) {
  WEIR_TRY(state.metrics, telemetry::make_endpoint(state.options.metrics_port));
  state.metrics->collect([&state]() -> std::vector<telemetry::Family> {
    return {{"weir_operator_info",
             "Version of the operator.",
             telemetry::Type::kGauge,
             {{{{"version", kVersion}, {"revision", revision()}}, 1, {}}}}};
  });
  return Unit{};
}

// The CRD may be installed a moment after the operator starts, because one Helm release has both.
Status wait_for_crd(RunState& state) {
  const SteadyTime give_up = state.clock.now() + kUnreachable;
  bool logged = false;
  while (!state.stop.stop_requested()) {
    const auto answer = state.client->list(kube::pipeline_jobs(), state.scopes.front(), "?limit=1");
    if (answer) return Unit{};
    const kube::ApiError& error = answer.error();
    const std::string why =
        error.http_status == 404 ? "the CRD pipelinejobs.weir.dev is not installed" : error.message;
    if (!logged) log_error("app", "waiting for the API", {{"why", why}});
    logged = true;
    const bool reachable = error.http_status == 404 || error.http_status == 403;
    if (!reachable && state.clock.now() > give_up) return Error{error.code, why};
    state.clock.sleep_until(state.clock.now() + kProbeEvery, state.stop.get_token());
  }
  return Error{Code::kCancelled, "stopped"};
}

}  // namespace

std::vector<RunStep> connection_steps() {
  return {
      {"log",
       [](RunState& state) -> Status {
         set_log(state.options.log_level, state.options.log_format);
         return Unit{};
       },
       {}},
      {"signals", catch_signals, {}},
      {"http threads",
       [](RunState&) -> Status {
         kube::init_http_threads();
         return Unit{};
       },
       {}},
      {"credentials", read_credentials, {}},
      {"transports", make_transports, {}},
      {"metrics endpoint", open_metrics, [](RunState& state) { state.metrics.reset(); }},
      {"health endpoint",
       [](RunState& state) -> Status {
         WEIR_TRY(state.health, serve_health(state));
         return Unit{};
       },
       [](RunState& state) { state.health->stop(); }},
      {"clients", make_clients, [](RunState& state) { state.requests_stop.request_stop(); }},
      {"CRD", wait_for_crd, {}},
  };
}

}  // namespace weir::operator_app
