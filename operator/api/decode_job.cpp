// SPDX-License-Identifier: Apache-2.0
// PipelineJob from JSON. Defaults are those of the CRD (the struct's initialisers), so that a job
// that was stored before a default existed reads the same.
#include <algorithm>
#include <array>

#include "operator/api/decode_parts.h"

namespace weir::api {
namespace {

// Conditions of other controllers on our object stay theirs: not read, so never sent.
constexpr std::array kOurConditions = {
    "Accepted",         "PodsScheduled",           "WorkersReady", "Ready",    "Degraded",
    "ReplanInProgress", "NetworkMetricsAvailable", "Suspended",    "Complete", "Failed"};

WorkerSpec read_worker(const Field& worker) {
  WorkerSpec out;
  out.image = worker["image"].text();
  out.image_pull_policy = worker["imagePullPolicy"].text();
  out.service_account = worker["serviceAccountName"].text();
  out.priority_class = worker["priorityClassName"].text();
  out.command = worker["command"].texts();
  out.args = worker["args"].texts();
  out.image_pull_secrets = worker["imagePullSecrets"].json_text();
  out.env = worker["env"].json_text();
  out.volumes = worker["volumes"].json_text();
  out.volume_mounts = worker["volumeMounts"].json_text();
  return out;
}

WorkerGroup read_group(const Field& group) {
  WorkerGroup out;
  out.name = group["name"].text();
  out.count = group["count"].integer(1);
  out.ranks_per_worker = group["ranksPerWorker"].integer(1);
  out.spares = group["spares"].integer(0);
  if (const Field range = group["stageRange"]; range.present()) {
    out.stage_range = StageRange{range["first"].integer(), range["last"].integer()};
  }
  out.resources = group["resources"].json_text();
  out.template_json = group["template"].json_text();
  out.tolerations = group["tolerations"].json_text();
  out.node_selector = group["nodeSelector"].text_map();
  return out;
}

void read_schedule(const Field& schedule, ScheduleSpec& out) {
  out.type = schedule["type"].text(out.type);
  out.dispatch = schedule["dispatch"].text(out.dispatch);
  const Field k = schedule["k"];
  out.k_mode = k["mode"].text(out.k_mode);
  out.k_min = k["min"].integer(out.k_min);
  out.k_max = k["max"].maybe_integer();
  out.k_initial = k["initial"].maybe_integer();
  out.in_flight_caps = schedule["inFlightCaps"].integers();
}

void read_tier(const Field& tier, TierSpec& out) {
  out.enabled = tier["enabled"].boolean(out.enabled);
  out.cooldown_seconds = tier["cooldownSeconds"].integer(out.cooldown_seconds);
  out.min_gain_percent = tier["minGainPercent"].integer(out.min_gain_percent);
}

void read_adaptation(const Field& adaptation, AdaptationSpec& out) {
  out.mode = adaptation["mode"].text(out.mode);
  out.evaluation_interval_seconds =
      adaptation["evaluationIntervalSeconds"].integer(out.evaluation_interval_seconds);
  read_tier(adaptation["retune"], out.retune);
  read_tier(adaptation["regroup"], out.regroup);
  read_tier(adaptation["replace"], out.replace);
  const Field metrics = adaptation["metrics"];
  out.metrics_source = metrics["source"].text(out.metrics_source);
  out.window_seconds = metrics["windowSeconds"].integer(out.window_seconds);
  out.stale_after_seconds = metrics["staleAfterSeconds"].integer(out.stale_after_seconds);
}

void read_placement(const Field& spec, JobSpec& out) {
  out.placement_mode = spec["placement"]["mode"].text(out.placement_mode);
  if (const Field keys = spec["placement"]["topologyKeys"]; keys.present()) {
    out.topology_keys = keys.texts();
  }
  const Field scheduling = spec["scheduling"];
  out.scheduler_name = scheduling["schedulerName"].text();
  out.scheduling_timeout_seconds =
      scheduling["timeoutSeconds"].integer(out.scheduling_timeout_seconds);
  out.gang_provider = scheduling["gang"]["provider"].text(out.gang_provider);
  out.gang_queue = scheduling["gang"]["queue"].text();
  const Field network = spec["network"];
  out.network_interface = network["interface"].text();
  out.host_network = network["hostNetwork"].boolean();
  out.transport = network["transport"].text(out.transport);
  if (const Field size = network["sharedMemory"]; size.present()) {
    out.shared_memory = size.quantity();
  }
}

void read_failure_policy(const Field& policy, JobSpec& out) {
  out.max_restarts = policy["maxRestarts"].integer(out.max_restarts);
  out.restart_scope = policy["restartScope"].text(out.restart_scope);
  for (const Field& rule : policy["rules"].items()) {
    out.failure_rules.push_back({rule["name"].text(), rule["action"].text(),
                                 rule["onExitCodes"].integers(), rule["onPodConditions"].texts()});
  }
}

JobSpec read_spec(const Field& spec) {
  JobSpec out;
  out.suspend = spec["suspend"].boolean();
  out.managed_by = spec["managedBy"].text();
  const Field parallelism = spec["parallelism"];
  out.data_parallel = parallelism["dataParallel"].integer(1);
  out.min_data_parallel = parallelism["minDataParallel"].maybe_integer();
  out.stages = parallelism["stages"].maybe_integer();
  out.worker = read_worker(spec["worker"]);
  for (const Field& group : spec["workerGroups"].items()) {
    out.worker_groups.push_back(read_group(group));
  }
  std::ranges::sort(out.worker_groups, {}, &WorkerGroup::name);
  out.global_batch = spec["batch"]["globalBatchSize"].integer(1);
  out.micro_batch_size = spec["batch"]["microBatchSize"].maybe_integer();
  const Field profile = spec["model"]["profile"];
  out.profile.source = profile["source"].text(out.profile.source);
  out.profile.warmup_steps = profile["warmupSteps"].integer(out.profile.warmup_steps);
  out.profile.config_map = profile["configMap"]["name"].text();
  out.profile.key = profile["configMap"]["key"].text(out.profile.key);
  read_schedule(spec["schedule"], out.schedule);
  out.sync_mode = spec["sync"]["mode"].text(out.sync_mode);
  read_adaptation(spec["adaptation"], out.adaptation);
  read_placement(spec, out);
  out.checkpoint_path = spec["checkpoint"]["path"].text();
  out.checkpoint_grace_seconds = spec["checkpoint"]["graceSeconds"].maybe_integer();
  read_failure_policy(spec["failurePolicy"], out);
  out.startup_timeout_seconds = spec["startupTimeoutSeconds"].integer(out.startup_timeout_seconds);
  out.progress_deadline_seconds =
      spec["progressDeadlineSeconds"].integer(out.progress_deadline_seconds);
  out.active_deadline_seconds = spec["activeDeadlineSeconds"].maybe_integer64();
  out.ttl_seconds_after_finished = spec["ttlSecondsAfterFinished"].maybe_integer();
  out.cleanup_policy = spec["cleanupPolicy"].text(out.cleanup_policy);
  return out;
}

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
  for (const Field& group : status["workerGroups"].items()) {
    out.worker_groups.push_back({group["name"].text(), group["pendingReason"].text(),
                                 group["desired"].integer(), group["scheduled"].integer(),
                                 group["ready"].integer(), group["failed"].integer()});
  }
  out.plan = read_plan(status["plan"]);
  const Field adaptation = status["adaptation"];
  out.retune_last_change = adaptation["retune"]["lastChangeTime"].time();
  out.retune_cooldown_seconds = adaptation["retune"]["cooldownSeconds"].integer();
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
  out.sync_mode = status["sync"]["mode"].text();
  out.micro_batch_shares = status["sync"]["microBatchShares"].integers();
  return out;
}

}  // namespace

PipelineJob read_job(const Field& root) {
  PipelineJob job;
  job.meta = decode_meta(root["metadata"]);
  job.spec = read_spec(root["spec"]);
  job.status = read_status(root["status"]);
  job.report = read_report(root["status"]);
  return job;
}

}  // namespace weir::api
