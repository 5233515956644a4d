// SPDX-License-Identifier: Apache-2.0
// Counters and histograms of the operator as a process: requests, passes, queue, planning.
#include "operator/app/exposition.h"
#include "operator/controller/controller.h"
#include "worker/base/units.h"

namespace weir::operator_app {
namespace {

using telemetry::Family;
using telemetry::Labels;
using telemetry::Type;
using telemetry::with;

Labels queue_labels() {
  return {{"name", "pipelinejob"}};
}

// Buckets of client-go's workqueue metrics.
const std::vector<double> kQueueBounds{1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 100, 1000};

}  // namespace

std::function<void(const char*, int, std::chrono::nanoseconds)> client_observer(
    telemetry::Endpoint& metrics) {
  auto& took = metrics.histogram("rest_client_request_duration_seconds",
                                 "Time of requests to the API server.", {},
                                 {0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60});
  return [&metrics, &took](const char* method, int http_status, std::chrono::nanoseconds time) {
    took.observe(to_seconds(time));
    metrics
        .counter("rest_client_requests_total", "Requests to the API server.",
                 {{"method", method},
                  {"code", http_status == 0 ? "<error>" : std::to_string(http_status)}})
        .add();
  };
}

std::function<void(const char*, std::chrono::nanoseconds)> reconcile_observer(
    telemetry::Endpoint& metrics) {
  const Labels controller = {{"controller", "pipelinejob"}};
  std::map<std::string, telemetry::Counter*> results;
  for (const char* result : {"success", "error", "requeue", "requeue_after"}) {
    results[result] =
        &metrics.counter("controller_runtime_reconcile_total", "Reconcile passes by result.",
                         with(controller, "result", result));
  }
  auto& errors = metrics.counter("controller_runtime_reconcile_errors_total",
                                 "Reconcile passes that ended with an error.", controller);
  auto& took = metrics.histogram("controller_runtime_reconcile_time_seconds",
                                 "Time of a reconcile pass.", controller,
                                 {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60});
  return [results, &errors, &took](const char* result, std::chrono::nanoseconds time) {
    results.at(result)->add();
    if (std::string_view(result) == "error") errors.add();
    took.observe(to_seconds(time));
  };
}

controller::QueueCallbacks queue_callbacks(telemetry::Endpoint& metrics) {
  auto& adds = metrics.counter("workqueue_adds_total", "Jobs put into the queue.", queue_labels());
  auto& retries = metrics.counter("workqueue_retries_total",
                                  "Jobs put into the queue after an error.", queue_labels());
  auto& waited = metrics.histogram("workqueue_queue_duration_seconds",
                                   "Time of a job in the queue.", queue_labels(), kQueueBounds);
  auto& worked = metrics.histogram("workqueue_work_duration_seconds", "Time of work on a job.",
                                   queue_labels(), kQueueBounds);
  return {.added = [&adds] { adds.add(); },
          .retried = [&retries] { retries.add(); },
          .waited = [&waited](std::chrono::nanoseconds time) { waited.observe(to_seconds(time)); },
          .worked = [&worked](std::chrono::nanoseconds time) { worked.observe(to_seconds(time)); }};
}

std::vector<Family> queue_families(const controller::WorkQueue& queue) {
  const auto gauge = [](const char* name, const char* help, double value) {
    return Family{name, help, Type::kGauge, {{queue_labels(), value, {}}}};
  };
  const controller::Unfinished unfinished = queue.unfinished();
  return {gauge("workqueue_depth", "Jobs that wait for a reconcile.",
                static_cast<double>(queue.depth())),
          gauge("workqueue_unfinished_work_seconds", "Sum of the ages of the passes under way.",
                to_seconds(unfinished.sum)),
          gauge("workqueue_longest_running_processor_seconds", "Age of the oldest pass under way.",
                to_seconds(unfinished.longest))};
}

std::function<void(const char*, std::chrono::nanoseconds)> planner_observer(
    telemetry::Endpoint& metrics) {
  std::map<std::string, telemetry::Observer*> kinds;
  for (const std::string& kind : controller::plan_kinds()) {
    kinds[kind] = &metrics.histogram(
        "weir_planner_seconds", "Time of a decision about the plan, by kind.", {{"kind", kind}},
        {0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.5, 1, 3, 10});
  }
  return [kinds](const char* kind, std::chrono::nanoseconds time) {
    if (const auto found = kinds.find(kind); found != kinds.end()) {
      found->second->observe(to_seconds(time));
    }
  };
}

std::function<void(const std::string&, std::chrono::nanoseconds)> apply_observer(
    telemetry::Endpoint& metrics) {
  std::map<std::string, telemetry::Observer*> tiers;
  for (const std::string& tier : controller::plan_kinds()) {
    if (tier == "evaluate") continue;  // an evaluation that keeps the plan applies nothing
    tiers[tier] = &metrics.histogram("weir_plan_apply_seconds",
                                     "From a new plan to the report that it runs, by its trigger.",
                                     {{"tier", tier}}, {0.1, 0.3, 1, 2, 5, 10, 20, 40, 80, 160});
  }
  return [tiers](const std::string& tier, std::chrono::nanoseconds time) {
    if (const auto found = tiers.find(tier); found != tiers.end()) {
      found->second->observe(to_seconds(time));
    }
  };
}

std::function<void(const gate::Observation&)> prediction_observer(telemetry::Endpoint& metrics) {
  struct OfTier {
    telemetry::Observer* ratio = nullptr;
    telemetry::Counter *inside = nullptr, *outside = nullptr;
  };
  std::map<gate::Tier, OfTier> tiers;
  for (const gate::Tier tier : {gate::Tier::kRetune, gate::Tier::kRegroup, gate::Tier::kReplace}) {
    const auto interval = [&](const char* inside) {
      return &metrics.counter("weir_prediction_interval_total",
                              "Changes whose measured gain lay in the 80 % interval, or not.",
                              {{"tier", gate::name(tier)}, {"inside", inside}});
    };
    tiers[tier] = {&metrics.histogram("weir_prediction_error_ratio",
                                      "Step after a change: measured over predicted.",
                                      {{"tier", gate::name(tier)}},
                                      {0.7, 0.8, 0.9, 0.95, 0.98, 1, 1.02, 1.05, 1.1, 1.2, 1.4}),
                   interval("true"), interval("false")};
  }
  return [tiers](const gate::Observation& observation) {
    const OfTier& tier = tiers.at(observation.tier);
    tier.ratio->observe((1 + observation.predicted) / (1 + observation.measured));
    (observation.inside ? tier.inside : tier.outside)->add();
  };
}

}  // namespace weir::operator_app
