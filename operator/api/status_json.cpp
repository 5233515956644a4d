// SPDX-License-Identifier: Apache-2.0
// Status as server-side apply bodies. Each field owner sends all its fields every time, because the
// server removes an omitted one.
#include <nlohmann/json.hpp>

#include "operator/api/encode.h"
#include "operator/api/fit.h"
#include "operator/api/json_write.h"
#include "worker/base/time_text.h"

namespace weir::api {
namespace {

using nlohmann::json;

void put(json& object, const char* key, const std::string& text) {
  if (!text.empty()) object[key] = text;
}
void put(json& object, const char* key, const std::optional<Time>& time) {
  if (time) object[key] = to_rfc3339(*time);
}

json conditions_json(const std::vector<Condition>& conditions) {
  json list = json::array();
  for (const Condition& condition : conditions) {
    list.push_back({{"type", condition.type},
                    {"status", condition.status},
                    {"reason", condition.reason},
                    {"message", condition.message},
                    {"observedGeneration", condition.observed_generation},
                    {"lastTransitionTime", to_rfc3339(condition.since)}});
  }
  return list;
}

json groups_json(const std::vector<GroupStatus>& groups) {
  json list = json::array();
  for (const GroupStatus& group : groups) {
    list.push_back({{"name", group.name},
                    {"desired", group.desired},
                    {"scheduled", group.scheduled},
                    {"ready", group.ready},
                    {"failed", group.failed},
                    {"pendingReason", group.pending_reason}});
  }
  return list;
}

json plan_json(const PlanStatus& plan) {
  json out = {{"revision", plan.revision},
              {"appliedRevision", plan.applied_revision},
              {"appliedStep", plan.applied_step},
              {"k", plan.k},
              {"microBatchSize", plan.micro_batch_size},
              {"microBatches", plan.micro_batches},
              {"stageCount", plan.stage_count}};
  put(out, "trigger", plan.trigger);
  put(out, "configMapName", plan.config_map);
  put(out, "predictedStepSeconds", plan.predicted_step_seconds);
  put(out, "predictedGainPercent", plan.predicted_gain_percent);
  put(out, "measuredGainPercent", plan.measured_gain_percent);
  put(out, "time", plan.time);
  out["stages"] = json::array();
  for (const StageStatus& stage : plan.stages) {
    out["stages"].push_back({{"index", stage.index},
                             {"workerGroup", stage.worker_group},
                             {"replicas", stage.replicas},
                             {"firstLayer", stage.first_layer},
                             {"lastLayer", stage.last_layer},
                             {"inFlightCap", stage.in_flight_cap},
                             {"node", stage.node}});
  }
  return out;
}

void put_restarts(json& out, const JobStatus& status) {
  out["restarts"] = status.restarts;
  out["restartBudgetUsed"] = status.restart_budget_used;
  out["restartStreak"] = status.restart_streak;
  out["podGeneration"] = status.pod_generation;
  put(out, "lastRestartTime", status.last_restart_time);
  put(out, "lastRestartReason", status.last_restart_reason);
  put(out, "lastRestartScope", status.last_restart_scope);
  for (const RestartCount& each : status.restart_reasons) {
    out["restartReasons"].push_back({{"reason", each.reason}, {"count", each.count}});
  }
  for (const AvoidedNode& each : status.avoided_nodes) {
    out["avoidedNodes"].push_back(
        {{"node", each.node}, {"reason", each.reason}, {"until", to_rfc3339(each.until)}});
  }
  for (const MemoryLimit& each : status.memory_limits) {
    out["memoryLimits"].push_back({{"group", each.group},
                                   {"stage", each.stage},
                                   {"inFlightCap", each.in_flight_cap},
                                   {"planChanged", each.plan_changed}});
  }
}

// The uid makes the server refuse a status of a deleted job for a new job of the same name.
json apply_body(const PipelineJob& job, json status) {
  json metadata = {{"name", job.meta.name}, {"namespace", job.meta.namespace_name}};
  if (!job.meta.uid.empty()) metadata["uid"] = job.meta.uid;
  return {{"apiVersion", "weir.dev/v1alpha1"},
          {"kind", "PipelineJob"},
          {"metadata", std::move(metadata)},
          {"status", std::move(status)}};
}

}  // namespace

std::string encode_status(const PipelineJob& job, const JobStatus& whole, bool guarded) {
  JobStatus status = whole;
  fit(status);
  json out = {{"observedGeneration", status.observed_generation},
              {"conditions", conditions_json(status.conditions)},
              {"dataParallel", status.data_parallel},
              {"workerGroups", groups_json(status.worker_groups)}};
  put(out, "startTime", status.start_time);
  put(out, "completionTime", status.completion_time);
  put_restarts(out, status);
  if (status.suspended_seconds > 0) out["suspendedSeconds"] = status.suspended_seconds;
  if (status.scheduling_timeouts > 0) {
    json& scheduling = out["scheduling"] = {{"timeouts", status.scheduling_timeouts}};
    put(scheduling, "retryTime", status.scheduling_retry);
  }
  put(out, "selector", status.selector);
  put(out, "workersSummary", status.workers_summary);
  put(out, "templateHash", status.template_hash);
  put(out, "gangProvider", status.gang_provider);
  if (status.plan.revision > 0) out["plan"] = plan_json(status.plan);
  json adaptation = json::object();
  const auto put_tier = [&](const char* tier, const std::optional<Time>& last, int cooldown) {
    if (!last && cooldown == 0) return;
    json& clock = adaptation[tier] = {{"cooldownSeconds", cooldown}};
    put(clock, "lastChangeTime", last);
  };
  put_tier("retune", status.retune_last_change, status.retune_cooldown_seconds);
  put_tier("regroup", status.regroup_last_change, status.regroup_cooldown_seconds);
  put_tier("replace", status.replace_last_change, status.replace_cooldown_seconds);
  put(adaptation, "lastReplanRequest", status.last_replan_request);
  if (!adaptation.empty()) out["adaptation"] = std::move(adaptation);

  json body = apply_body(job, std::move(out));
  if (guarded) body["metadata"]["resourceVersion"] = job.meta.resource_version;
  return dump_json(body);
}

std::string encode_report_status(const PipelineJob& job, const ReportStatus& whole) {
  ReportStatus status = whole;
  fit(status);
  json out = json::object();
  if (status.has_progress) {
    json& progress = out["progress"] = {{"step", status.step},
                                        {"totalSteps", status.total_steps},
                                        {"percentage", status.percentage}};
    put(progress, "samplesPerSecond", status.samples_per_second);
    put(progress, "loss", status.loss);
    put(progress, "bubblePercent", status.bubble_percent);
    if (status.estimated_remaining_seconds) {
      progress["estimatedRemainingSeconds"] = *status.estimated_remaining_seconds;
    }
    if (status.last_checkpoint_step) progress["lastCheckpointStep"] = *status.last_checkpoint_step;
    put(progress, "lastStepTime", status.last_step_time);
    put(progress, "lastReportTime", status.last_report_time);
  }
  if (!status.network_state.empty()) {
    json& network =
        out["network"] = {{"state", status.network_state}, {"worstLinks", json::array()}};
    put(network, "lastSampleTime", status.last_sample_time);
    for (const WorstLink& link : status.worst_links) {
      json item = {{"fromNode", link.from_node},
                   {"toNode", link.to_node},
                   {"fromStage", link.from_stage},
                   {"toStage", link.to_stage},
                   {"bandwidth", link.bandwidth}};
      put(item, "baseline", link.baseline);
      put(item, "latencyMilliseconds", link.latency_milliseconds);
      put(item, "since", link.since);
      network["worstLinks"].push_back(std::move(item));
    }
  }
  if (!status.sync_mode.empty()) {
    json& sync =
        out["sync"] = {{"mode", status.sync_mode}, {"microBatchShares", status.micro_batch_shares}};
    if (status.sync_group_size_max > 0) sync["groupSizeMax"] = status.sync_group_size_max;
    put(sync, "meanGroupSize", status.sync_mean_group_size);
    put(sync, "maxStaleness", status.sync_max_staleness);
  }
  return dump_json(apply_body(job, std::move(out)));
}

}  // namespace weir::api
