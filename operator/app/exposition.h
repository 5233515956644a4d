// SPDX-License-Identifier: Apache-2.0
// The metrics of worker/telemetry/README.md "Operator". Counters of the process are registered at
// the endpoint. Families per job are built from the cache at each scrape, so that they end with
// their job.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "operator/adaptation/gate/calibration.h"
#include "operator/api/pipeline_job.h"
#include "operator/cache/snapshot.h"
#include "operator/controller/work_queue.h"
#include "operator/estimator/estimates.h"
#include "worker/base/clock.h"
#include "worker/telemetry/metric.h"

namespace weir::operator_app {

// One job and its estimates.
struct JobFacts {
  std::shared_ptr<const api::PipelineJob> job;
  estimator::Estimates estimates;
};
// The families weir_job_* of all jobs. Pure.
std::vector<telemetry::Family> job_families(const std::vector<JobFacts>& jobs, SystemTime now);

// weir_job_plan_changes_total: plan changes by tier and outcome. They are counted from the events
// that report them. Thread-safe.
class PlanChanges {
 public:
  void count(const api::PipelineJob& job, const std::string& event_reason);
  // jobs: all that exist; the counts of others are dropped.
  telemetry::Family family(const std::vector<JobFacts>& jobs);

 private:
  std::mutex mutex_;  // guards counts_
  std::map<std::string, std::map<std::pair<std::string, std::string>, int>> counts_;  // by job uid
};

// The observers below are safe from any thread.
// rest_client_requests_total, rest_client_request_duration_seconds.
std::function<void(const char* method, int http_status, std::chrono::nanoseconds took)>
client_observer(telemetry::Endpoint& metrics);
// controller_runtime_reconcile_*.
std::function<void(const char* result, std::chrono::nanoseconds took)> reconcile_observer(
    telemetry::Endpoint& metrics);
// workqueue_* as client-go names them. The gauges among them are in queue_families.
controller::QueueCallbacks queue_callbacks(telemetry::Endpoint& metrics);
std::vector<telemetry::Family> queue_families(const controller::WorkQueue& queue);
// weir_planner_seconds by kind, weir_plan_apply_seconds by tier.
std::function<void(const char* kind, std::chrono::nanoseconds took)> planner_observer(
    telemetry::Endpoint& metrics);
std::function<void(const std::string& tier, std::chrono::nanoseconds took)> apply_observer(
    telemetry::Endpoint& metrics);
// weir_prediction_error_ratio and weir_prediction_interval_total by tier.
std::function<void(const gate::Observation& observation)> prediction_observer(
    telemetry::Endpoint& metrics);

}  // namespace weir::operator_app
