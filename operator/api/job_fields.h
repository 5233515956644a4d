// SPDX-License-Identifier: Apache-2.0
// The fields of a PipelineJob, once for both directions: fields(io, struct) works with JobReader
// and JobWriter. Not for other rooms.
#pragma once

#include <algorithm>
#include <concepts>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/api/json_read.h"
#include "operator/api/pipeline_job.h"
#include "worker/base/time_text.h"

namespace weir::api {

template <class T, class Struct>
concept Same = std::same_as<std::remove_const_t<T>, Struct>;

// Reads members of an object by their path, such as "k.mode". A missing member leaves its value,
// which is the CRD's default, so that a job that was stored before a default existed reads the
// same.
class JobReader {
 public:
  explicit JobReader(const Field& object) : object_(object) {}

  void operator()(const char* path, std::string& out) const { out = at(path).text(out); }
  void operator()(const char* path, int& out) const { out = at(path).integer(out); }
  void operator()(const char* path, std::int64_t& out) const { out = at(path).integer64(out); }
  void operator()(const char* path, bool& out) const { out = at(path).boolean(out); }
  void operator()(const char* path, Time& out) const { out = at(path).time().value_or(out); }
  void operator()(const char* path, std::optional<int>& out) const {
    out = at(path).maybe_integer();
  }
  void operator()(const char* path, std::optional<std::int64_t>& out) const {
    out = at(path).maybe_integer64();
  }
  void operator()(const char* path, std::optional<Time>& out) const { out = at(path).time(); }
  void operator()(const char* path, std::vector<int>& out) const { out = at(path).integers(); }
  void operator()(const char* path, std::vector<std::string>& out) const {
    if (const Field list = at(path); list.present()) out = list.texts();
  }
  void operator()(const char* path, std::map<std::string, std::string>& out) const {
    out = at(path).text_map();
  }
  template <class E>
  void operator()(const char* path, Choice<E>& out) const {
    out = at(path).text(out.text());
  }
  template <class T>
  void operator()(const char* path, std::optional<T>& out) const {
    if (const Field member = at(path); member.present()) fields(JobReader(member), out.emplace());
  }
  template <class T>
  void operator()(const char* path, std::vector<T>& out) const {
    for (const Field& item : at(path).items()) fields(JobReader(item), out.emplace_back());
  }
  template <class T>
    requires std::is_class_v<T>
  void operator()(const char* path, T& out) const {
    fields(JobReader(at(path)), out);
  }
  void always(const char* path, auto& out) const { (*this)(path, out); }
  void json(const char* path, std::string& out) const { out = at(path).json_text(); }
  void quantity(const char* path, std::string& out) const {
    if (const Field size = at(path); size.present()) out = size.quantity();
  }
  bool has(const char* path) const { return at(path).present(); }
  static constexpr bool kReads = true;

 private:
  Field at(std::string_view path) const {
    Field field = object_;
    for (std::size_t dot; (dot = path.find('.')) != path.npos; path.remove_prefix(dot + 1)) {
      field = field[path.substr(0, dot)];
    }
    return field[path];
  }
  Field object_;
};

// Writes members of an object. Empty texts and lists and unset values are left out; `always` writes
// them, too.
class JobWriter {
 public:
  explicit JobWriter(nlohmann::json& object) : object_(object) {}

  void operator()(const char* path, const std::string& text) const {
    if (!text.empty()) at(path) = text;
  }
  void operator()(const char* path, Time time) const { at(path) = to_rfc3339(time); }
  template <class T>
  void operator()(const char* path, const std::optional<T>& value) const {
    if (value) (*this)(path, *value);
  }
  template <class T>
  void operator()(const char* path, const std::vector<T>& list) const {
    if (!list.empty()) always(path, list);
  }
  template <class T>
  void operator()(const char* path, const T& value) const {
    if constexpr (std::is_class_v<T>) {
      fields(JobWriter(at(path) = nlohmann::json::object()), value);
    } else {
      at(path) = value;
    }
  }
  void always(const char* path, const auto& value) const { at(path) = value; }
  template <class T>
    requires std::is_class_v<T>
  void always(const char* path, const std::vector<T>& list) const {
    nlohmann::json& items = at(path) = nlohmann::json::array();
    for (const T& item : list)
      fields(JobWriter(items.emplace_back(nlohmann::json::object())), item);
  }
  static constexpr bool kReads = false;

 private:
  nlohmann::json& at(std::string path) const {
    std::ranges::replace(path, '.', '/');
    return object_[nlohmann::json::json_pointer("/" + path)];
  }
  nlohmann::json& object_;
};

// ---- spec: read only ----

inline void fields(const JobReader& io, StageRange& range) {
  io("first", range.first);
  io("last", range.last);
}
inline void fields(const JobReader& io, WorkerGroup& group) {
  io("name", group.name);
  io("count", group.count);
  io("ranksPerWorker", group.ranks_per_worker);
  io("spares", group.spares);
  io("stageRange", group.stage_range);
  io.json("resources", group.resources);
  io.json("template", group.template_json);
  io.json("tolerations", group.tolerations);
  io("nodeSelector", group.node_selector);
}
inline void fields(const JobReader& io, WorkerSpec& worker) {
  io("image", worker.image);
  io("imagePullPolicy", worker.image_pull_policy);
  io("serviceAccountName", worker.service_account);
  io("priorityClassName", worker.priority_class);
  io("command", worker.command);
  io("args", worker.args);
  io.json("imagePullSecrets", worker.image_pull_secrets);
  io.json("env", worker.env);
  io.json("volumes", worker.volumes);
  io.json("volumeMounts", worker.volume_mounts);
}
inline void fields(const JobReader& io, ProfileSpec& profile) {
  io("source", profile.source);
  io("warmupSteps", profile.warmup_steps);
  io("configMap.name", profile.config_map);
  io("configMap.key", profile.key);
}
inline void fields(const JobReader& io, ScheduleSpec& schedule) {
  io("type", schedule.type);
  io("dispatch", schedule.dispatch);
  io("k.mode", schedule.k_mode);
  io("k.min", schedule.k_min);
  io("k.max", schedule.k_max);
  io("k.initial", schedule.k_initial);
  io("inFlightCaps", schedule.in_flight_caps);
  io("split", schedule.split);
}
inline void fields(const JobReader& io, TierSpec& tier) {
  io("enabled", tier.enabled);
  io("cooldownSeconds", tier.cooldown_seconds);
  io("minGainPercent", tier.min_gain_percent);
}
inline void fields(const JobReader& io, AdaptationSpec& adaptation) {
  io("mode", adaptation.mode);
  io("evaluationIntervalSeconds", adaptation.evaluation_interval_seconds);
  io("retune", adaptation.retune);
  io("regroup", adaptation.regroup);
  io("replace", adaptation.replace);
  io("metrics.windowSeconds", adaptation.window_seconds);
  io("metrics.staleAfterSeconds", adaptation.stale_after_seconds);
}
inline void fields(const JobReader& io, FailureRule& rule) {
  io("name", rule.name);
  io("action", rule.action);
  io("onExitCodes", rule.exit_codes);
  io("onPodConditions", rule.pod_conditions);
}
inline void fields(const JobReader& io, JobSpec& spec) {
  io("suspend", spec.suspend);
  io("managedBy", spec.managed_by);
  io("parallelism.dataParallel", spec.data_parallel);
  io("parallelism.minDataParallel", spec.min_data_parallel);
  io("parallelism.stages", spec.stages);
  io("worker", spec.worker);
  io("workerGroups", spec.worker_groups);
  io("batch.globalBatchSize", spec.global_batch);
  io("batch.microBatchSize", spec.micro_batch_size);
  io("model.profile", spec.profile);
  io("schedule", spec.schedule);
  io("sync.mode", spec.sync_mode);
  io("sync.maxStaleness", spec.sync_max_staleness);
  io("sync.groupSizeMax", spec.sync_group_size_max);
  io("sync.rebalance", spec.sync_rebalance);
  io("adaptation", spec.adaptation);
  io("placement.mode", spec.placement_mode);
  io("placement.topologyKeys", spec.topology_keys);
  io("scheduling.schedulerName", spec.scheduler_name);
  io("scheduling.timeoutSeconds", spec.scheduling_timeout_seconds);
  io("scheduling.gang.provider", spec.gang_provider);
  io("scheduling.gang.queue", spec.gang_queue);
  io("network.interface", spec.network_interface);
  io("network.hostNetwork", spec.host_network);
  io("network.transport", spec.transport);
  io.quantity("network.sharedMemory", spec.shared_memory);
  io("checkpoint.path", spec.checkpoint_path);
  io("checkpoint.persistentVolumeClaim.claimName", spec.checkpoint_claim);
  io("checkpoint.graceSeconds", spec.checkpoint_grace_seconds);
  io("checkpoint.intervalSteps", spec.checkpoint_interval_steps);
  io("failurePolicy.maxRestarts", spec.max_restarts);
  io("failurePolicy.restartScope", spec.restart_scope);
  io("failurePolicy.rules", spec.failure_rules);
  io("startupTimeoutSeconds", spec.startup_timeout_seconds);
  io("progressDeadlineSeconds", spec.progress_deadline_seconds);
  io("activeDeadlineSeconds", spec.active_deadline_seconds);
  io("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished);
  io("cleanupPolicy", spec.cleanup_policy);
}

// ---- status ----

void fields(const auto& io, Same<Condition> auto& condition) {
  io.always("type", condition.type);
  io.always("status", condition.status);
  io.always("reason", condition.reason);
  io.always("message", condition.message);
  io("observedGeneration", condition.observed_generation);
  io("lastTransitionTime", condition.since);
}
void fields(const auto& io, Same<GroupStatus> auto& group) {
  io.always("name", group.name);
  io("desired", group.desired);
  io("scheduled", group.scheduled);
  io("ready", group.ready);
  io("failed", group.failed);
  io.always("pendingReason", group.pending_reason);
}
void fields(const auto& io, Same<StageStatus> auto& stage) {
  io("index", stage.index);
  io.always("workerGroup", stage.worker_group);
  io("replicas", stage.replicas);
  io("firstLayer", stage.first_layer);
  io("lastLayer", stage.last_layer);
  io("inFlightCap", stage.in_flight_cap);
  io.always("node", stage.node);
}
void fields(const auto& io, Same<PlanStatus> auto& plan) {
  io("revision", plan.revision);
  io("appliedRevision", plan.applied_revision);
  io("appliedStep", plan.applied_step);
  io("k", plan.k);
  io("microBatchSize", plan.micro_batch_size);
  io("microBatches", plan.micro_batches);
  io("stageCount", plan.stage_count);
  io("trigger", plan.trigger);
  io("configMapName", plan.config_map);
  io("predictedStepSeconds", plan.predicted_step_seconds);
  io("predictedGainPercent", plan.predicted_gain_percent);
  io("measuredGainPercent", plan.measured_gain_percent);
  io("split", plan.split);
  io("boundPercent.simulated", plan.bound_percent_simulated);
  io("boundPercent.measured", plan.bound_percent_measured);
  io("time", plan.time);
  io.always("stages", plan.stages);
}
void fields(const auto& io, Same<ModelStatus> auto& model) {
  io("name", model.name);
  io("layers", model.layers);
  io("parameters", model.parameters);
  io("engine", model.engine);
  io("exported", model.exported);
}
void fields(const auto& io, Same<RestartCount> auto& count) {
  io.always("reason", count.reason);
  io("count", count.count);
}
void fields(const auto& io, Same<AvoidedNode> auto& avoided) {
  io.always("node", avoided.node);
  io.always("reason", avoided.reason);
  io("until", avoided.until);
}
void fields(const auto& io, Same<MemoryLimit> auto& limit) {
  io.always("group", limit.group);
  io("stage", limit.stage);
  io("inFlightCap", limit.in_flight_cap);
  io("planChanged", limit.plan_changed);
}
void fields(const auto& io, Same<JobStatus> auto& status) {
  io("observedGeneration", status.observed_generation);
  io.always("conditions", status.conditions);
  io("dataParallel", status.data_parallel);
  io.always("workerGroups", status.worker_groups);
  io("startTime", status.start_time);
  io("completionTime", status.completion_time);
  io("restarts", status.restarts);
  io("restartBudgetUsed", status.restart_budget_used);
  io("restartStreak", status.restart_streak);
  io("podGeneration", status.pod_generation);
  io("lastRestartTime", status.last_restart_time);
  io("lastRestartReason", status.last_restart_reason);
  io("lastRestartScope", status.last_restart_scope);
  io("restartReasons", status.restart_reasons);
  io("avoidedNodes", status.avoided_nodes);
  io("memoryLimits", status.memory_limits);
  if (io.kReads || status.suspended_seconds > 0) io("suspendedSeconds", status.suspended_seconds);
  if (io.kReads || status.scheduling_timeouts > 0) {
    io("scheduling.timeouts", status.scheduling_timeouts);
    io("scheduling.retryTime", status.scheduling_retry);
  }
  io("selector", status.selector);
  io("workersSummary", status.workers_summary);
  io("templateHash", status.template_hash);
  io("gangProvider", status.gang_provider);
  if (io.kReads || status.model != ModelStatus{}) io("model", status.model);
  if (io.kReads || status.plan.revision > 0) io("plan", status.plan);
  if (io.kReads || status.retune_last_change || status.retune_cooldown_seconds != 0) {
    io("adaptation.retune.cooldownSeconds", status.retune_cooldown_seconds);
    io("adaptation.retune.lastChangeTime", status.retune_last_change);
  }
  if (io.kReads || status.regroup_last_change || status.regroup_cooldown_seconds != 0) {
    io("adaptation.regroup.cooldownSeconds", status.regroup_cooldown_seconds);
    io("adaptation.regroup.lastChangeTime", status.regroup_last_change);
  }
  if (io.kReads || status.replace_last_change || status.replace_cooldown_seconds != 0) {
    io("adaptation.replace.cooldownSeconds", status.replace_cooldown_seconds);
    io("adaptation.replace.lastChangeTime", status.replace_last_change);
  }
  io("adaptation.lastReplanRequest", status.last_replan_request);
}

// ---- report ----

void fields(const auto& io, Same<WorstLink> auto& link) {
  io.always("fromNode", link.from_node);
  io.always("toNode", link.to_node);
  io("fromStage", link.from_stage);
  io("toStage", link.to_stage);
  io.always("bandwidth", link.bandwidth);
  io("baseline", link.baseline);
  io("latencyMilliseconds", link.latency_milliseconds);
  io("since", link.since);
}
template <class Io, Same<ReportStatus> T>
void fields(const Io& io, T& report) {
  if constexpr (Io::kReads) report.has_progress = io.has("progress");
  if (io.kReads || report.has_progress) {
    io("progress.step", report.step);
    io("progress.totalSteps", report.total_steps);
    io("progress.percentage", report.percentage);
    io("progress.samplesPerSecond", report.samples_per_second);
    io("progress.loss", report.loss);
    io("progress.bubblePercent", report.bubble_percent);
    io("progress.estimatedRemainingSeconds", report.estimated_remaining_seconds);
    io("progress.lastCheckpointStep", report.last_checkpoint_step);
    io("progress.lastStepTime", report.last_step_time);
    io("progress.lastReportTime", report.last_report_time);
  }
  if (io.kReads || !report.network_state.empty()) {
    io("network.state", report.network_state);
    io.always("network.worstLinks", report.worst_links);
    io("network.lastSampleTime", report.last_sample_time);
  }
  if (io.kReads || !report.sync_mode.empty()) {
    io("sync.mode", report.sync_mode);
    io.always("sync.microBatchShares", report.micro_batch_shares);
    if (io.kReads || report.sync_group_size_max > 0)
      io("sync.groupSizeMax", report.sync_group_size_max);
    io("sync.meanGroupSize", report.sync_mean_group_size);
    io("sync.maxStaleness", report.sync_max_staleness);
  }
}

}  // namespace weir::api
