// SPDX-License-Identifier: Apache-2.0
// The spec of a PipelineJob from JSON. Defaults are those of the CRD (the struct's initialisers),
// so that a job that was stored before a default existed reads the same.
#include <algorithm>

#include "operator/api/decode_parts.h"

namespace weir::api {
namespace {

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
  const Field sync = spec["sync"];
  out.sync_mode = sync["mode"].text(out.sync_mode);
  out.sync_max_staleness = sync["maxStaleness"].integer(out.sync_max_staleness);
  out.sync_group_size_max = sync["groupSizeMax"].maybe_integer();
  out.sync_rebalance = sync["rebalance"].boolean(out.sync_rebalance);
  read_adaptation(spec["adaptation"], out.adaptation);
  read_placement(spec, out);
  out.checkpoint_path = spec["checkpoint"]["path"].text();
  out.checkpoint_claim = spec["checkpoint"]["persistentVolumeClaim"]["claimName"].text();
  out.checkpoint_grace_seconds = spec["checkpoint"]["graceSeconds"].maybe_integer();
  out.checkpoint_interval_steps = spec["checkpoint"]["intervalSteps"].maybe_integer();
  read_failure_policy(spec["failurePolicy"], out);
  out.startup_timeout_seconds = spec["startupTimeoutSeconds"].integer(out.startup_timeout_seconds);
  out.progress_deadline_seconds =
      spec["progressDeadlineSeconds"].integer(out.progress_deadline_seconds);
  out.active_deadline_seconds = spec["activeDeadlineSeconds"].maybe_integer64();
  out.ttl_seconds_after_finished = spec["ttlSecondsAfterFinished"].maybe_integer();
  out.cleanup_policy = spec["cleanupPolicy"].text(out.cleanup_policy);
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
