// SPDX-License-Identifier: Apache-2.0
// The fields of a PipelineJob, once for both directions: fields(io, struct) works with JobReader
// and JobWriter. The fields of its status are in status_fields.h. Not for other rooms.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/api/json_read.h"
#include "operator/api/pipeline_job.h"
#include "operator/api/status_fields.h"
#include "worker/base/time_text.h"

namespace weir::api {

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

// The spec is only read.

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
inline void fields(const JobReader& io, CompressSpec& compress) {
  io("enabled", compress.enabled);
  io("coarsest", compress.coarsest);
  io("cooldownSeconds", compress.cooldown_seconds);
  io("minGainPercent", compress.min_gain_percent);
}
inline void fields(const JobReader& io, AdaptationSpec& adaptation) {
  io("mode", adaptation.mode);
  io("evaluationIntervalSeconds", adaptation.evaluation_interval_seconds);
  io("retune", adaptation.retune);
  io("regroup", adaptation.regroup);
  io("replace", adaptation.replace);
  io("compress", adaptation.compress);
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
  io("network.connectionsPerLink", spec.connections_per_link);
  io("network.congestionControl", spec.congestion_control);
  io("network.dscp.boundary", spec.boundary_dscp);
  io("network.dscp.bulk", spec.bulk_dscp);
  io.quantity("network.sharedMemory", spec.shared_memory);
  io("checkpoint.path", spec.checkpoint_path);
  io("checkpoint.persistentVolumeClaim.claimName", spec.checkpoint_claim);
  io("checkpoint.graceSeconds", spec.checkpoint_grace_seconds);
  io("checkpoint.intervalSteps", spec.checkpoint_interval_steps);
  io("recovery.maxLostSteps", spec.max_lost_steps);
  io("recovery.neighborCopies", spec.neighbor_copies);
  io("recovery.lostAfterSeconds", spec.lost_after_seconds);
  io("failurePolicy.maxRestarts", spec.max_restarts);
  io("failurePolicy.restartScope", spec.restart_scope);
  io("failurePolicy.rules", spec.failure_rules);
  io("startupTimeoutSeconds", spec.startup_timeout_seconds);
  io("progressDeadlineSeconds", spec.progress_deadline_seconds);
  io("activeDeadlineSeconds", spec.active_deadline_seconds);
  io("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished);
  io("cleanupPolicy", spec.cleanup_policy);
}

}  // namespace weir::api
