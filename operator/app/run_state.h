// SPDX-License-Identifier: Apache-2.0
// Everything that `weir-operator run` owns, in the order of its steps. Private to this room.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "operator/app/exposition.h"
#include "operator/app/options.h"
#include "operator/app/step_list.h"
#include "operator/app/watches.h"
#include "operator/cache/object_cache.h"
#include "operator/control/certificate_keeper.h"
#include "operator/control/control_api.h"
#include "operator/control/hub.h"
#include "operator/control/trace_maps.h"
#include "operator/controller/controller.h"
#include "operator/controller/metrics_loop.h"
#include "operator/kube/auth.h"
#include "operator/kube/client.h"
#include "operator/kube/events.h"
#include "operator/kube/kube_config.h"
#include "operator/kube/lease.h"
#include "operator/kube/server_clock.h"
#include "operator/metrics/prometheus_source.h"
#include "worker/base/clock.h"
#include "worker/http/server.h"
#include "worker/http/transport.h"
#include "worker/telemetry/metric.h"

namespace weir::operator_app {

struct RunState {
  explicit RunState(Options given) : options(std::move(given)) {}

  const Options options;
  SystemClock machine_clock;
  kube::ServerClock clock{machine_clock};  // follows the API server once that has answered
  std::stop_source stop;                   // SIGTERM or SIGINT requests it
  std::stop_source requests_stop;          // ends requests that are in progress
  std::jthread signals;
  std::atomic<bool> ready{false};  // everything has started

  std::optional<kube::Credentials> credentials;
  std::string namespace_name, identity;
  std::vector<std::string> scopes;  // watched namespaces, {""} = all
  std::unique_ptr<http::Transport> api, lease_api, prometheus;
  std::unique_ptr<kube::TokenSource> token;
  std::unique_ptr<telemetry::Endpoint> metrics;
  std::unique_ptr<kube::Client> client, lease_client;
  std::unique_ptr<http::Server> health;

  std::unique_ptr<cache::ObjectCache> cache;
  std::unique_ptr<control_server::Hub> hub;
  std::unique_ptr<kube::EventSender> events;
  std::unique_ptr<metrics::PrometheusSource> source;
  std::unique_ptr<controller::MetricsLoop> metrics_loop;
  std::unique_ptr<kube::Elector> elector;
  std::unique_ptr<controller::Controller> controller;
  std::atomic<bool> reconciling{false};  // this replica leads and the controller's threads run
  PlanChanges plan_changes;
  std::unique_ptr<kube::Client> review_client;  // TokenReviews have a budget of their own
  std::unique_ptr<control_server::TokenReviewer> reviewer;
  std::unique_ptr<control_server::CertificateKeeper> certificates;

  std::unique_ptr<Watches> watches;
  std::unique_ptr<control_server::TraceMaps> traces;
  std::unique_ptr<control_server::ControlApi> control;
  std::jthread lease_thread, events_thread, metrics_thread;

  control_server::KeysSecret keys_secret() const;
  std::string control_url() const;
  std::vector<JobFacts> job_facts() const;
};

using RunStep = Step<RunState>;
// All steps in order. A test asserts their names.
std::vector<RunStep> run_steps_list();
// The parts of the list.
std::vector<RunStep> connection_steps();  // up to a client of an API server that serves the CRD
std::vector<RunStep> leading_steps();     // parts that work only while this replica leads
std::vector<RunStep> cache_steps();
std::vector<RunStep> serving_steps();  // watches, control API
std::vector<RunStep> lease_steps();    // lease, then wait
// Renews certificates that end soon. The waiting main thread calls it each minute.
void renew_certificates(RunState& state);

// Exit code: 0 = stopped on request, 1 = failed, 2 = invalid configuration.
int run_command(const Options& options);

}  // namespace weir::operator_app
