// SPDX-License-Identifier: Apache-2.0
// The status of a PipelineJob from JSON, as this or a former leader wrote it.
#include <algorithm>
#include <array>

#include "operator/api/decode_parts.h"

namespace weir::api {
namespace {

// Conditions of other controllers are not read, so that they are never sent as ours.
constexpr std::array kOurConditions = {"Accepted",
                                       "PodsScheduled",
                                       "WorkersReady",
                                       "Ready",
                                       "Degraded",
                                       "ReplanInProgress",
                                       "NetworkMetricsAvailable",
                                       "Suspended",
                                       "Complete",
                                       "Failed",
                                       "Finished",
                                       "Stalled"};

PlanStatus read_plan(const Field& plan) {
  PlanStatus out;
  out.revision = plan["revision"].integer64();
  out.applied_revision = plan["appliedRevision"].integer64();
  out.applied_step = plan["appliedStep"].integer64();
  out.trigger = plan["trigger"].text();
  out.config_map = plan["configMapName"].text();
  out.k = plan["k"].integer();
  out.micro_batch_size = plan["microBatchSize"].integer();
  out.micro_batches = plan["microBatches"].integer();
  out.stage_count = plan["stageCount"].integer();
  out.predicted_step_seconds = plan["predictedStepSeconds"].text();
  out.predicted_gain_percent = plan["predictedGainPercent"].text();
  out.measured_gain_percent = plan["measuredGainPercent"].text();
  out.time = plan["time"].time();
  for (const Field& stage : plan["stages"].items()) {
    out.stages.push_back({stage["index"].integer(), stage["replicas"].integer(1),
                          stage["firstLayer"].integer(), stage["lastLayer"].integer(),
                          stage["inFlightCap"].integer(), stage["workerGroup"].text(),
                          stage["node"].text()});
  }
  return out;
}

void read_restarts(const Field& status, JobStatus& out) {
  out.restart_streak = status["restartStreak"].integer();
  out.pod_generation = status["podGeneration"].integer();
  out.last_restart_reason = status["lastRestartReason"].text();
  out.last_restart_scope = status["lastRestartScope"].text();
  for (const Field& item : status["restartReasons"].items()) {
    out.restart_reasons.push_back({item["reason"].text(), item["count"].integer()});
  }
  for (const Field& item : status["avoidedNodes"].items()) {
    out.avoided_nodes.push_back(
        {item["node"].text(), item["reason"].text(), item["until"].time().value_or(Time{})});
  }
  for (const Field& item : status["memoryLimits"].items()) {
    out.memory_limits.push_back({item["group"].text(), item["stage"].integer(-1),
                                 item["inFlightCap"].integer(), item["planChanged"].boolean()});
  }
}

}  // namespace

JobStatus read_status(const Field& status) {
  JobStatus out;
  out.observed_generation = status["observedGeneration"].integer64();
  for (const Field& item : status["conditions"].items()) {
    Condition condition{item["type"].text(),
                        item["status"].text(),
                        item["reason"].text(),
                        item["message"].text(),
                        item["observedGeneration"].integer64(),
                        item["lastTransitionTime"].time().value_or(Time{})};
    if (std::ranges::find(kOurConditions, condition.type) != kOurConditions.end()) {
      out.conditions.push_back(std::move(condition));
    }
  }
  out.start_time = status["startTime"].time();
  out.completion_time = status["completionTime"].time();
  out.last_restart_time = status["lastRestartTime"].time();
  out.data_parallel = status["dataParallel"].integer(1);
  out.selector = status["selector"].text();
  out.workers_summary = status["workersSummary"].text();
  out.template_hash = status["templateHash"].text();
  out.gang_provider = status["gangProvider"].text();
  out.restarts = status["restarts"].integer();
  out.restart_budget_used = status["restartBudgetUsed"].integer();
  read_restarts(status, out);
  for (const Field& group : status["workerGroups"].items()) {
    out.worker_groups.push_back({group["name"].text(), group["pendingReason"].text(),
                                 group["desired"].integer(), group["scheduled"].integer(),
                                 group["ready"].integer(), group["failed"].integer()});
  }
  out.plan = read_plan(status["plan"]);
  out.suspended_seconds = status["suspendedSeconds"].integer64();
  out.scheduling_timeouts = status["scheduling"]["timeouts"].integer();
  out.scheduling_retry = status["scheduling"]["retryTime"].time();
  const Field adaptation = status["adaptation"];
  out.retune_last_change = adaptation["retune"]["lastChangeTime"].time();
  out.retune_cooldown_seconds = adaptation["retune"]["cooldownSeconds"].integer();
  out.regroup_last_change = adaptation["regroup"]["lastChangeTime"].time();
  out.regroup_cooldown_seconds = adaptation["regroup"]["cooldownSeconds"].integer();
  out.replace_last_change = adaptation["replace"]["lastChangeTime"].time();
  out.replace_cooldown_seconds = adaptation["replace"]["cooldownSeconds"].integer();
  out.last_replan_request = adaptation["lastReplanRequest"].text();
  return out;
}

ReportStatus read_report(const Field& status) {
  ReportStatus out;
  const Field progress = status["progress"];
  out.has_progress = progress.present();
  out.step = progress["step"].integer64();
  out.total_steps = progress["totalSteps"].integer64();
  out.percentage = progress["percentage"].integer();
  out.samples_per_second = progress["samplesPerSecond"].text();
  out.loss = progress["loss"].text();
  out.bubble_percent = progress["bubblePercent"].text();
  out.estimated_remaining_seconds = progress["estimatedRemainingSeconds"].maybe_integer64();
  if (const Field saved = progress["lastCheckpointStep"]; saved.present()) {
    out.last_checkpoint_step = saved.integer64();
  }
  out.last_step_time = progress["lastStepTime"].time();
  out.last_report_time = progress["lastReportTime"].time();
  const Field network = status["network"];
  out.network_state = network["state"].text();
  out.last_sample_time = network["lastSampleTime"].time();
  for (const Field& link : network["worstLinks"].items()) {
    out.worst_links.push_back({link["fromNode"].text(), link["toNode"].text(),
                               link["bandwidth"].text(), link["baseline"].text(),
                               link["latencyMilliseconds"].text(), link["fromStage"].integer(),
                               link["toStage"].integer(), link["since"].time()});
  }
  const Field sync = status["sync"];
  out.sync_mode = sync["mode"].text();
  out.sync_group_size_max = sync["groupSizeMax"].integer(0);
  out.sync_mean_group_size = sync["meanGroupSize"].text();
  out.sync_max_staleness = sync["maxStaleness"].text();
  out.micro_batch_shares = sync["microBatchShares"].integers();
  return out;
}

}  // namespace weir::api
