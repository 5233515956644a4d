// SPDX-License-Identifier: Apache-2.0
// PipelineJob v1alpha1 as structs, defaults applied (api.md 3 and 6). Parts of the spec that are
// core/v1 stay JSON text: the operator only passes them on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/objects.h"

namespace weir::api {

struct StageRange {
  int first = 0, last = 0;
};

struct WorkerGroup {
  std::string name;
  int count = 1, ranks_per_worker = 1, spares = 0;
  std::optional<StageRange> stage_range;
  std::string resources, template_json;  // JSON objects; "" = unset
  std::string tolerations;               // JSON array; "" = unset
  std::map<std::string, std::string> node_selector;
};

struct WorkerSpec {
  std::string image, image_pull_policy, service_account, priority_class;
  std::vector<std::string> command, args;
  std::string image_pull_secrets, env, volumes, volume_mounts;  // JSON arrays; "" = unset
};

struct ProfileSpec {
  std::string source = "Measure";  // or ConfigMap
  int warmup_steps = 5;
  std::string config_map, key = "profile.json";
};

struct ScheduleSpec {
  std::string type = "KFKB", dispatch = "Hint";
  std::string k_mode = "Auto";
  int k_min = 1;
  std::optional<int> k_max, k_initial;
  std::vector<int> in_flight_caps;
};

struct TierSpec {
  bool enabled = true;
  int cooldown_seconds = 60, min_gain_percent = 3;
};

struct AdaptationSpec {
  std::string mode = "Auto";  // Off, Observe, Auto
  int evaluation_interval_seconds = 15;
  TierSpec retune{true, 60, 3}, regroup{true, 600, 10}, replace{false, 1800, 30};
  std::string metrics_source = "Prometheus";
  int window_seconds = 30, stale_after_seconds = 60;
};

struct FailureRule {
  std::string name, action;
  std::vector<int> exit_codes;
  std::vector<std::string> pod_conditions;
};

struct JobSpec {
  bool suspend = false;
  std::string managed_by;
  int data_parallel = 1;
  std::optional<int> min_data_parallel, stages;
  WorkerSpec worker;
  std::vector<WorkerGroup> worker_groups;  // sorted by name
  int global_batch = 1;
  std::optional<int> micro_batch_size;
  ProfileSpec profile;
  ScheduleSpec schedule;
  std::string sync_mode = "Exact";
  AdaptationSpec adaptation;
  std::string placement_mode = "LateBinding";
  std::vector<std::string> topology_keys{"kubernetes.io/hostname"};
  std::string scheduler_name;
  int scheduling_timeout_seconds = 600;
  std::string gang_provider = "Auto", gang_queue;
  std::string network_interface, transport = "Auto";
  bool host_network = false;
  std::string shared_memory = "1Gi";
  std::string checkpoint_path;  // "" = no block
  std::optional<int> checkpoint_grace_seconds;
  int max_restarts = 6;
  std::string restart_scope = "Worker";
  std::vector<FailureRule> failure_rules;
  int startup_timeout_seconds = 900, progress_deadline_seconds = 1800;
  std::optional<std::int64_t> active_deadline_seconds;
  std::optional<int> ttl_seconds_after_finished;
  std::string cleanup_policy = "Running";
};

struct Condition {
  std::string type, status, reason, message;
  std::int64_t observed_generation = 0;
  Time since{};  // lastTransitionTime
  bool operator==(const Condition&) const = default;
};

struct GroupStatus {
  std::string name, pending_reason;
  int desired = 0, scheduled = 0, ready = 0, failed = 0;
  bool operator==(const GroupStatus&) const = default;
};

struct StageStatus {
  int index = 0, replicas = 1, first_layer = 0, last_layer = 0, in_flight_cap = 0;
  std::string worker_group, node;
  bool operator==(const StageStatus&) const = default;
};

struct PlanStatus {
  std::int64_t revision = 0, applied_revision = 0, applied_step = 0;
  std::string trigger, config_map;
  int k = 0, micro_batch_size = 0, micro_batches = 0, stage_count = 0;
  std::string predicted_step_seconds, predicted_gain_percent, measured_gain_percent;
  std::optional<Time> time;
  std::vector<StageStatus> stages;
  bool operator==(const PlanStatus&) const = default;
};

// Field owner weir-operator.
struct JobStatus {
  std::int64_t observed_generation = 0;
  std::vector<Condition> conditions;  // ours only
  std::optional<Time> start_time, completion_time, last_restart_time;
  int data_parallel = 1;
  std::string selector, workers_summary, template_hash, gang_provider;
  int restarts = 0, restart_budget_used = 0;
  std::vector<GroupStatus> worker_groups;
  PlanStatus plan;
  std::optional<Time> retune_last_change;
  int retune_cooldown_seconds = 0;
  std::string last_replan_request;
  bool operator==(const JobStatus&) const = default;
};

struct WorstLink {
  std::string from_node, to_node, bandwidth, baseline, latency_milliseconds;
  int from_stage = 0, to_stage = 0;
  std::optional<Time> since;
  bool operator==(const WorstLink&) const = default;
};

// Field owner weir-operator-report.
struct ReportStatus {
  std::int64_t step = 0, total_steps = 0;
  int percentage = 0;
  std::string samples_per_second, loss, bubble_percent;
  std::optional<std::int64_t> estimated_remaining_seconds;
  std::optional<Time> last_step_time, last_report_time;
  bool has_progress = false;
  std::string network_state;  // Healthy, Contended, Unknown; "" = not yet
  std::optional<Time> last_sample_time;
  std::vector<WorstLink> worst_links;
  std::string sync_mode;
  std::vector<int> micro_batch_shares;
  bool operator==(const ReportStatus&) const = default;
};

struct PipelineJob {
  ObjectMeta meta;
  JobSpec spec;
  JobStatus status;
  ReportStatus report;
};

}  // namespace weir::api
