// SPDX-License-Identifier: Apache-2.0
// A job and its plans as the API server stores them, for the tests of the command line.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "operator/cli/job_view.h"
#include "worker/base/time_text.h"
#include "worker/protocol/codec.h"

namespace weir::cli::test_jobs {

inline const api::Time kNow = *parse_rfc3339("2026-01-02T09:30:00Z");

inline nlohmann::json condition_of(const char* type, const char* status, const char* reason,
                                   const char* message) {
  return {{"type", type}, {"status", status}, {"reason", reason}, {"message", message}};
}

// A job that runs with a contended link.
inline nlohmann::json running_job() {
  using nlohmann::json;
  return json::parse(R"json({
    "metadata": {"name": "gpt", "namespace": "demo", "uid": "u-1",
                 "creationTimestamp": "2026-01-02T09:00:00Z"},
    "spec": {"batch": {"globalBatchSize": 64}, "adaptation": {"mode": "Auto"},
             "checkpoint": {"path": "/ckpt", "persistentVolumeClaim": {"claimName": "models"}}},
    "status": {
      "dataParallel": 1, "restarts": 0,
      "conditions": [
        {"type": "Ready", "status": "True", "reason": "Running", "message": "training advances"},
        {"type": "Accepted", "status": "True", "reason": "Accepted", "message": ""},
        {"type": "NetworkMetricsAvailable", "status": "True", "reason": "Fresh",
         "message": "6 link directions measured"},
        {"type": "Degraded", "status": "True", "reason": "NetworkContended",
         "message": "link n1->n2 38.0Mbit/s, usually 3.4Gbit/s, costs 321 ms a step (21.2 %)"
}],
      "plan": {"revision": 2, "appliedRevision": 2, "appliedStep": 120, "trigger": "Retune", "k": 2,
               "microBatchSize": 4, "microBatches": 16, "stageCount": 2,
               "predictedStepSeconds": "1.19", "predictedGainPercent": "26.1",
               "predictedGainInterval": "+21..+31",
               "boundPercent": {"simulated": 6, "measured": 27}, "time": "2026-01-02T09:24:31Z",
               "stages": [
                 {"index": 0, "workerGroup": "a100", "replicas": 1, "firstLayer": 0, "lastLayer": 3,
                  "inFlightCap": 4, "node": "n1"},
                 {"index": 1, "workerGroup": "l4", "replicas": 1, "firstLayer": 4, "lastLayer": 7,
                  "inFlightCap": 2, "node": "n2"}]},
      "progress": {"step": 151, "totalSteps": 300, "samplesPerSecond": "42.4", "loss": "2.8",
                   "lastCheckpointStep": 100, "lastReportTime": "2026-01-02T09:29:52Z"},
      "network": {
  "state" : "Contended", "worstLinks" : [
    {
      "fromNode" : "n1",
      "toNode" : "n2",
      "fromStage" : 0,
      "toStage" : 1,
      "bandwidth" : "38.0Mbit/s",
      "baseline" : "3.4Gbit/s",
      "since" : "2026-01-02T09:29:19Z"
    },
    {
      "fromNode" : "n2",
      "toNode" : "n1",
      "fromStage" : 1,
      "toStage" : 0,
      "bandwidth" : "3.2Gbit/s",
      "baseline" : "3.4Gbit/s"
    }
  ]
}
}
})json");
}

inline schedule::Plan plan_of(std::uint32_t revision, int k) {
  schedule::Plan plan;
  plan.job_uid = "u-1";
  plan.revision = revision;
  plan.parent = revision - 1;
  plan.trigger = revision == 1 ? schedule::Trigger::kInitial : schedule::Trigger::kRetune;
  plan.schedule.k = k;
  plan.schedule.micro_batch_size = 4;
  plan.schedule.caps = {2 * k, k};
  plan.micro_batches = {16};
  plan.stages = {{0, 3}, {4, 7}};
  plan.ranks = {{.pod = "gpt-a100-0", .pod_uid = "p0", .ip = "10.0.0.1", .node = "n1", .stage = 0},
                {.pod = "gpt-l4-1", .pod_uid = "p1", .ip = "10.0.0.2", .node = "n2", .stage = 1}};
  if (revision > 1) plan.predicted_gain = 0.261;
  return plan;
}

inline nlohmann::json config_map_of(const schedule::Plan& plan, const char* made) {
  return {{"metadata",
           {{"name", "gpt-plan-" + std::to_string(plan.revision)},
            {"namespace", "demo"},
            {"labels", {{"weir.dev/job-name", "gpt"}}},
            {"creationTimestamp", made}}},
          {"data", {{"plan.json", protocol::encode_plan(plan)}}}};
}

inline nlohmann::json list_of(const std::vector<nlohmann::json>& items) {
  return {{"items", items}};
}

inline nlohmann::json event_of(const char* time, const char* type, const char* reason,
                               const std::string& note) {
  return {{"metadata", {{"name", std::string("gpt.") + reason + time}}},
          {"involvedObject", {{"kind", "PipelineJob"}, {"name", "gpt"}, {"uid", "u-1"}}},
          {"eventTime", time},
          {"type", type},
          {"reason", reason},
          {"message", note}};
}

inline JobView view_of(const nlohmann::json& job) {
  return *read_job(job.dump());
}

inline std::string text_of(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

}  // namespace weir::cli::test_jobs
