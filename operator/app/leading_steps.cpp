// SPDX-License-Identifier: Apache-2.0
// Last steps: events, metrics, controller, lease. These parts work only while this replica holds
// the lease.
#include <cstdlib>
#include <pthread.h>

#include "operator/app/prometheus_headers.h"
#include "operator/app/run_state.h"
#include "worker/base/random.h"

namespace weir::operator_app {
namespace {

constexpr std::chrono::seconds kReconcilesEnd{30}, kEventsEnd{1};  // limits of a clean stop
constexpr std::chrono::seconds kRequestsEnd{2};
constexpr std::chrono::minutes kCertificateLook{1};  // time between two looks at certificates

Status make_metrics_source(RunState& state) {
  metrics::SourceOptions options;
  options.scrape_interval = state.options.prometheus_scrape_interval;
  options.namespace_label = state.options.prometheus_namespace_label;
  options.extra_matchers = state.options.prometheus_extra_matchers;
  options.headers = prometheus_headers(state.options, state.clock);
  auto& took = state.metrics->histogram("weir_metrics_query_seconds", "Time of Prometheus queries.",
                                        {}, {0.01, 0.03, 0.1, 0.3, 1, 3, 10});
  std::map<std::string, telemetry::Counter*> errors;
  for (const char* reason : {"transport", "status", "prometheus", "decode"}) {
    errors[reason] = &state.metrics->counter("weir_metrics_query_errors_total",
                                             "Failed Prometheus queries.", {{"reason", reason}});
  }
  options.observe = [&took, errors](const char* reason, std::chrono::nanoseconds time) {
    took.observe(std::chrono::duration<double>(time).count());
    if (const auto counter = errors.find(reason); counter != errors.end()) counter->second->add();
  };
  state.source = std::make_unique<metrics::PrometheusSource>(state.prometheus.get(), state.clock,
                                                             std::move(options));
  state.metrics_loop = std::make_unique<controller::MetricsLoop>(
      [&state](const std::vector<metrics::JobQuery>& jobs, const std::stop_token& stop) {
        return state.source->fetch(jobs, stop);
      },
      state.prometheus != nullptr, *state.cache, state.clock,
      [&state](const std::string& key) { state.controller->queue().add(key); });
  return Unit{};
}

controller::ControlView control_view(const RunState& state, const std::string& key,
                                     const std::string& uid) {
  controller::ControlView view;
  if (auto members = state.hub->members(key, uid)) {
    view.members = reconcile::MembersView{std::move(members->body), members->received};
  }
  if (auto report = state.hub->report(key, uid)) {
    view.report = reconcile::ReportView{std::move(report->body), report->received};
  }
  for (const control_server::ReceivedClaim& claim : state.hub->claims(key, uid)) {
    view.claims.push_back({claim.pod_uid, claim.term, claim.received});
  }
  return view;
}

Status make_controller(RunState& state) {
  controller::Executor::Parts parts{*state.client,
                                    *state.cache,
                                    *state.events,
                                    state.clock,
                                    [&state] { return state.elector->may_write(); },
                                    [&state] { return state.control_url(); },
                                    [&state] { return state.certificates->bundle(); }};
  controller::ControllerOptions options;
  options.threads = state.options.concurrent_reconciles;
  options.tunables.scrape_interval = state.options.prometheus_scrape_interval;
  options.control = [&state](const std::string& key, const std::string& uid) {
    return control_view(state, key, uid);
  };
  options.estimates = [&state](const std::string& key, const std::string& uid) {
    return state.metrics_loop->estimates(key, uid);
  };
  options.leading_since = [&state] { return state.elector->leading_since(); };
  options.observe = reconcile_observer(*state.metrics);
  options.planned = planner_observer(*state.metrics);
  options.applied = apply_observer(*state.metrics);
  options.judged = prediction_observer(*state.metrics);
  options.queue = queue_callbacks(*state.metrics);
  state.controller = std::make_unique<controller::Controller>(std::move(parts), std::move(options));
  state.hub->on_change([&state](const std::string& key) { state.controller->queue().add(key); });
  return Unit{};
}

std::vector<telemetry::Family> collect(RunState& state) {
  const auto facts = state.job_facts();
  auto families = job_families(facts, state.clock.system_now());
  families.push_back(state.plan_changes.family(facts));
  const auto gauge = [&families](const char* name, const char* help, telemetry::Labels labels,
                                 double value) {
    families.push_back({name, help, telemetry::Type::kGauge, {{std::move(labels), value, {}}}});
  };
  gauge("leader_election_master_status", "1 while this replica leads.",
        {{"name", state.options.name}}, state.elector->leading() ? 1 : 0);
  for (auto& family : queue_families(state.controller->queue())) {
    families.push_back(std::move(family));
  }
  gauge("weir_control_polls", "Open polls for a plan.", {},
        static_cast<double>(state.hub->open_polls()));
  return families;
}

Status make_elector(RunState& state) {
  kube::LeaseOptions options;
  options.namespace_name = state.namespace_name;
  options.name = state.options.name;
  options.identity = state.identity;
  options.duration = state.options.lease_duration;
  options.renew_deadline = state.options.renew_deadline;
  options.retry = state.options.retry_period;
  state.elector = std::make_unique<kube::Elector>(*state.lease_client, state.clock, options,
                                                  mix_seed(1, state.identity));
  return Unit{};
}

Status start_lease(RunState& state) {
  state.lease_thread = std::jthread([&state](const std::stop_token& stop) {
    state.elector->run(
        stop,
        [&state] {
          state.controller->start();
          state.reconciling = true;
          state.metrics_thread =
              std::jthread([&state](const std::stop_token& end) { state.metrics_loop->run(end); });
          pthread_setname_np(state.metrics_thread.native_handle(), "metrics");
        },
        [] { std::_Exit(1); });  // another replica may lead now, so nothing more may be written
  });
  pthread_setname_np(state.lease_thread.native_handle(), "lease");
  return Unit{};
}

// Waits for running passes and sends their events. The lease is held until that is done.
void stop_reconciling(RunState& state) {
  state.metrics_thread = {};
  if (!state.controller->stop(state.clock.now() + kReconcilesEnd)) {
    log_warn("app", "a reconcile did not end in time");
    state.requests_stop.request_stop();
    state.controller->stop(state.clock.now() + kRequestsEnd);
  }
  state.reconciling = false;
  state.events_thread = {};
  state.events->drain(state.clock.now() + kEventsEnd);
}

Status wait_for_stop(RunState& state) {
  state.ready = true;
  log_info("app", "ready", {{"control", state.control_url()}});
  while (!state.stop.stop_requested()) {
    state.clock.sleep_until(state.clock.now() + kCertificateLook, state.stop.get_token());
    if (state.stop.stop_requested()) break;
    renew_certificates(state);
    state.traces->sweep();
  }
  return Unit{};
}

}  // namespace

std::vector<RunStep> leading_steps() {
  return {
      {"events",
       [](RunState& state) -> Status {
         state.events =
             std::make_unique<kube::EventSender>(*state.client, state.clock, state.identity);
         state.events->on_emit([&state](const api::PipelineJob& job, const std::string& reason) {
           state.plan_changes.count(job, reason);
         });
         state.events_thread =
             std::jthread([&state](const std::stop_token& stop) { state.events->run(stop); });
         pthread_setname_np(state.events_thread.native_handle(), "events");
         return Unit{};
       },
       [](RunState& state) { state.events_thread = {}; }},
      {"metrics source", make_metrics_source, {}},
      {"elector", make_elector, {}},
      {"controller", make_controller, {}},
  };
}

std::vector<RunStep> lease_steps() {
  return {
      {"exposition",
       [](RunState& state) -> Status {
         state.metrics->collect([&state] { return collect(state); });
         return Unit{};
       },
       {}},
      {"lease", start_lease,
       [](RunState& state) {
         state.lease_thread = {};
         state.elector->release();
       }},
      {"reconcile", [](RunState&) -> Status { return Unit{}; }, stop_reconciling},
      {"wait", wait_for_stop, [](RunState& state) { state.ready = false; }},
  };
}

}  // namespace weir::operator_app
