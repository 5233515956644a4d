// SPDX-License-Identifier: Apache-2.0
// Middle steps, which every replica runs: caches that follow the API server, and the control API.
#include "operator/app/run_state.h"
#include "operator/app/version.h"
#include "operator/control/certificates.h"

namespace weir::operator_app {
namespace {

constexpr std::chrono::minutes kSyncLimit{2};  // then the process exits
constexpr std::chrono::milliseconds kSyncPoll{50};

// Runs on the watch threads. Pods may be listed before their job, so the hub forgets a job only if
// it is missing from a complete cache.
void on_cache_change(RunState& state, const std::string& key, bool first) {
  const cache::JobView view = state.cache->view(key);
  if (view.job && !view.job->meta.deleting) {
    control_server::publish_view(*state.hub, key, view);
  } else if (state.cache->synced()) {
    state.hub->forget(key);
  }
  if (state.controller) state.controller->queue().add_gathering(key, first);
}

Status fill_caches(RunState& state) {
  state.watches =
      std::make_unique<Watches>(*state.client, state.clock, *state.cache, *state.metrics,
                                state.scopes, state.options.verify_interval, state.options.volcano);
  const SteadyTime give_up = state.clock.now() + kSyncLimit;
  while (!state.cache->synced()) {
    if (state.clock.now() > give_up) return Error{Code::kTimeout, "not synced within 2 min"};
    if (!state.clock.sleep_until(state.clock.now() + kSyncPoll, state.stop.get_token())) {
      return Error{Code::kCancelled, "stopped"};
    }
  }
  log_info("app", "caches are synced", {{"jobs", state.cache->job_keys().size()}});
  return Unit{};
}

Status ensure_operator_keys(RunState& state) {
  state.certificates =
      std::make_unique<control_server::CertificateKeeper>(control_server::CertificateKeeper::Parts{
          *state.client, state.clock, state.keys_secret(),
          control_server::control_names(state.options.control_service, state.namespace_name,
                                        state.options.pod_ip),
          control_server::worker_name(state.options.control_service, state.namespace_name),
          state.options.control_tls_dir});
  state.metrics->collect([&state]() -> std::vector<telemetry::Family> {
    const std::chrono::duration<double> ends = state.certificates->leaf_ends().time_since_epoch();
    return {{"weir_control_certificate_expiration_timestamp_seconds",
             "When the certificate of the control API ends.",
             telemetry::Type::kGauge,
             {{{}, ends.count(), {}}}}};
  });
  return state.certificates->load();
}

telemetry::Counter& certificate_errors(telemetry::Endpoint& metrics) {
  return metrics.counter("weir_control_certificate_errors_total",
                         "Certificates of the control API that could not be looked at or used.",
                         {});
}

Status serve_control(RunState& state) {
  kube::ClientOptions client;
  client.requests_per_second = client.burst = control_server::kReviewsPerSecond;
  client.user_agent = std::string("weir-operator/") + kVersion;
  client.stop = state.requests_stop.get_token();
  client.observe = client_observer(*state.metrics);
  state.review_client = kube::make_client(*state.api, *state.token, state.clock, client);
  state.reviewer = control_server::make_token_reviewer(*state.review_client);

  control_server::ControlOptions options;
  options.port = options.leader_port = state.options.control_port;
  WEIR_TRY(options.tls, state.certificates->leaf());
  control_server::ControlParts parts{*state.cache, *state.hub, *state.reviewer, state.clock,
                                     state.certificates->seed()};
  parts.leading = [&state] { return state.elector->leading(); };
  parts.leader = [&state] { return state.elector->holder(); };
  telemetry::Endpoint& metrics = *state.metrics;
  certificate_errors(metrics);
  for (const char* endpoint : {"join", "register", "plan", "report", "trace", "other"}) {
    metrics.counter("weir_control_requests_total", "Answers of the control API.",
                    {{"endpoint", endpoint}, {"code", "202"}});
  }
  for (const char* result : {"accepted", "rejected", "error", "throttled"}) {
    metrics.counter("weir_token_reviews_total", "TokenReviews by result.", {{"result", result}});
  }
  state.traces = std::make_unique<control_server::TraceMaps>(
      *state.client, state.clock, [&state] { return state.elector->may_write(); },
      [&state](const api::PipelineJob& job, const api::Event& event) {
        state.events->emit(std::make_shared<api::PipelineJob>(job), event);
      });
  parts.keep_trace = [&state](const api::PipelineJob& job, const api::TracePart& part) {
    return state.traces->keep(job, part);
  };
  auto& dropped = metrics.counter("weir_report_fields_dropped_total",
                                  "Fields of reports whose values cannot be.", {});
  parts.observe_dropped = [&dropped](int fields) { dropped.add(fields); };
  parts.observe = [&metrics](const char* endpoint, int code) {
    metrics
        .counter("weir_control_requests_total", "Answers of the control API.",
                 {{"endpoint", endpoint}, {"code", std::to_string(code)}})
        .add();
  };
  parts.observe_review = [&metrics](const char* result) {
    metrics.counter("weir_token_reviews_total", "TokenReviews by result.", {{"result", result}})
        .add();
  };
  WEIR_TRY(state.control, control_server::start_control_api(options, std::move(parts)));
  return Unit{};
}

}  // namespace

void renew_certificates(RunState& state) {
  const auto changes = state.certificates->refresh(state.elector->may_write());
  for (const Error& error : changes.errors) {
    log_error("app", "cannot renew certificates of the control API", {{"error", error.message}});
    certificate_errors(*state.metrics).add();
  }
  if (changes.leaf) {
    state.control->set_tls(*changes.leaf);
    log_info("app", "new certificate of the control API",
             {{"source", changes.own ? "files" : "self-made"}});
  }
  if (!changes.bundle) return;
  for (const std::string& key : state.cache->job_keys()) state.controller->queue().add(key, true);
}

control_server::KeysSecret RunState::keys_secret() const {
  return {namespace_name, options.keys_secret_name()};
}

std::string RunState::control_url() const {
  return "https://" + control_server::worker_name(options.control_service, namespace_name) + ":" +
         std::to_string(options.control_port);
}

std::vector<JobFacts> RunState::job_facts() const {
  std::vector<JobFacts> facts;
  for (const std::string& key : cache->job_keys()) {
    const auto job = cache->view(key).job;
    if (job) facts.push_back({job, metrics_loop->estimates(key, job->meta.uid)});
  }
  return facts;
}

std::vector<RunStep> cache_steps() {
  return {
      {"cache",
       [](RunState& state) -> Status {
         state.cache = std::make_unique<cache::ObjectCache>(state.clock, state.scopes, true,
                                                            state.options.volcano);
         state.hub = std::make_unique<control_server::Hub>(state.clock);
         state.cache->on_change(
             [&state](const std::string& key, bool first) { on_cache_change(state, key, first); });
         return Unit{};
       },
       {}},
  };
}

std::vector<RunStep> serving_steps() {
  return {
      {"watches", fill_caches,
       [](RunState& state) {
         state.requests_stop.request_stop();
         state.watches.reset();
       }},
      {"operator keys", ensure_operator_keys, {}},
      {"control server", serve_control, [](RunState& state) { state.control->stop(); }},
  };
}

}  // namespace weir::operator_app
