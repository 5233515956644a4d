// SPDX-License-Identifier: Apache-2.0
// The fields of a PipelineJob's status, once for all that read or write them: fields(io, struct)
// works with JobReader and JobWriter, and with the reader of the command line (operator/cli), which
// is linked without simdjson.
#pragma once

#include <concepts>
#include <type_traits>

#include "operator/api/job_status.h"

namespace weir::api {

template <class T, class Struct>
concept Same = std::same_as<std::remove_const_t<T>, Struct>;

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
  io("predictedGainInterval", plan.predicted_gain_interval);
  io("measuredGainPercent", plan.measured_gain_percent);
  io("measuredGainError", plan.measured_gain_error);
  if (io.kReads || !plan.codecs.empty()) io("codecs", plan.codecs);
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
void fields(const auto& io, Same<Recovery> auto& recovery) {
  io.always("source", recovery.source);
  io("step", recovery.step);
  io("lostSteps", recovery.lost_steps);
  io("pauseSeconds", recovery.pause_seconds);
  io("reason", recovery.reason);
  io("time", recovery.time);
}
void fields(const auto& io, Same<ContainerRestarts> auto& restarts) {
  io.always("podUid", restarts.pod_uid);
  io("count", restarts.count);
}
void fields(const auto& io, Same<WorkerLoss> auto& loss) {
  io.always("worker", loss.worker);
  io("step", loss.step);
}
void fields(const auto& io, Same<RecoveryStatus> auto& recovery) {
  io("copies", recovery.copies);
  io("spares", recovery.spares);
  io("lostSteps", recovery.lost_steps);
  io("last", recovery.last);
  if (io.kReads || recovery.incarnation > 0) io("incarnation", recovery.incarnation);
  io("lostReplicas", recovery.lost_replicas);
  io("containerRestarts", recovery.container_restarts);
  io("lastContainerEndTime", recovery.last_container_end);
  io("recoverableUntil", recovery.recoverable_until);
  io("losses", recovery.losses);
}
void fields(const auto& io, Same<CoordinatorStatus> auto& coordinator) {
  io("pod", coordinator.pod);
  io("podUid", coordinator.pod_uid);
  io("lostPodUid", coordinator.lost_pod_uid);
  io("term", coordinator.term);
  io("time", coordinator.time);
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
  io("resumedGeneration", status.resumed_generation);
  io("lastRestartTime", status.last_restart_time);
  io("lastRestartReason", status.last_restart_reason);
  io("lastRestartScope", status.last_restart_scope);
  io("restartReasons", status.restart_reasons);
  io("avoidedNodes", status.avoided_nodes);
  io("memoryLimits", status.memory_limits);
  if (io.kReads || status.recovery != RecoveryStatus{}) io("recovery", status.recovery);
  io("coordinator", status.coordinator);
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
  if (io.kReads || status.compress_last_change || status.compress_cooldown_seconds != 0) {
    io("adaptation.compress.cooldownSeconds", status.compress_cooldown_seconds);
    io("adaptation.compress.lastChangeTime", status.compress_last_change);
  }
  io("adaptation.lastReplanRequest", status.last_replan_request);
}

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
void fields(const auto& io, Same<LinkCompression> auto& one) {
  io.always("link", one.link);
  io.always("forward", one.forward);
  io.always("backward", one.backward);
  io("sinceStep", one.since_step);
  io.always("errorRatio", one.error_ratio);
  io("payloadBytesPerStep", one.payload_bytes);
  io("wireBytesPerStep", one.wire_bytes);
}
void fields(const auto& io, Same<PerformanceLine> auto& one) {
  io.always("line", one.line);
  io.always("milliseconds", one.milliseconds);
}
void fields(const auto& io, Same<PerformanceRank> auto& rank) {
  io("stage", rank.stage);
  io("busyPercent", rank.busy);
  io("latePercent", rank.late);
  io("linkPercent", rank.link);
  io("fullPercent", rank.full);
  io("replicasPercent", rank.replicas);
  io("updatePercent", rank.update);
  io("throttledPercent", rank.throttled);
}
void fields(const auto& io, Same<PerformanceCause> auto& one) {
  io.always("cause", one.cause);
  io.always("text", one.text);
  io.always("seconds", one.seconds);
}
void fields(const auto& io, Same<PerformanceRemedy> auto& one) {
  io.always("text", one.text);
  io.always("stepSeconds", one.step_seconds);
  io.always("savesSeconds", one.saves_seconds);
  io.always("answer", one.answer);
}
void fields(const auto& io, Same<Performance> auto& performance) {
  io("stepMilliseconds", performance.step_milliseconds);
  io("steps", performance.steps);
  io("slowestStage", performance.slowest_stage);
  io("slowestNode", performance.slowest_node);
  io.always("lines", performance.lines);
  io("replica", performance.replica);
  io.always("ranks", performance.ranks);
  io("cause", performance.cause);
  io("causeText", performance.cause_text);
  io("causeSeconds", performance.cause_seconds);
  if (io.kReads || !performance.also_seen.empty()) io("alsoSeen", performance.also_seen);
  io("remedy", performance.remedy);
  io("remedySeconds", performance.remedy_seconds);
  if (io.kReads || !performance.remedies.empty()) io("remedies", performance.remedies);
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
    if (io.kReads || report.compressed_steps > 0) {
      io("progress.compressedSteps", report.compressed_steps);
    }
    io("progress.lastStepTime", report.last_step_time);
    io("progress.lastReportTime", report.last_report_time);
  }
  if (io.kReads || !report.network_state.empty()) {
    io("network.state", report.network_state);
    io.always("network.worstLinks", report.worst_links);
    if (io.kReads || !report.compression.empty()) io("network.compression", report.compression);
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
  if (io.kReads || report.performance != Performance{}) io("performance", report.performance);
}

}  // namespace weir::api
