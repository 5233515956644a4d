// SPDX-License-Identifier: Apache-2.0
// PipelineJob v1alpha1 as structs with the CRD's defaults (crds/README.md "Spec"). Parts of the
// spec that are core/v1 stay JSON text, because the operator only passes them on. The status is in
// job_status.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/enums.h"
#include "operator/api/job_status.h"
#include "operator/api/objects.h"

namespace weir::api {

struct StageRange {
  int first = 0, last = 0;
  bool operator==(const StageRange&) const = default;
};

inline constexpr int kMostSpares = 16;  // of a group

struct WorkerGroup {
  std::string name;
  int count = 1, ranks_per_worker = 1, spares = 0;
  std::optional<StageRange> stage_range;
  std::string resources, template_json;  // JSON objects; "" = unset
  std::string tolerations;               // JSON array; "" = unset
  std::map<std::string, std::string> node_selector;
  bool operator==(const WorkerGroup&) const = default;
};

struct WorkerSpec {
  std::string image, image_pull_policy, service_account, priority_class;
  std::vector<std::string> command, args;
  std::string image_pull_secrets, env, volumes, volume_mounts;  // JSON arrays; "" = unset
  bool operator==(const WorkerSpec&) const = default;
};

struct ProfileSpec {
  Choice<ProfileSource> source = ProfileSource::kMeasure;
  int warmup_steps = 5;
  std::string config_map, key = "profile.json";
  bool operator==(const ProfileSpec&) const = default;
};

struct ScheduleSpec {
  std::string type = "KFKB", dispatch = "Hint";
  Choice<KMode> k_mode = KMode::kAuto;
  int k_min = 1;
  std::optional<int> k_max, k_initial;
  std::vector<int> in_flight_caps;
  Choice<SplitMode> split = SplitMode::kAuto;
  bool operator==(const ScheduleSpec&) const = default;
};

struct TierSpec {
  bool enabled = true;
  int cooldown_seconds = 60, min_gain_percent = 3;
  bool operator==(const TierSpec&) const = default;
};

struct CompressSpec {
  bool enabled = false;
  Choice<Coarsest> coarsest = Coarsest::kInt8;
  int cooldown_seconds = 60, min_gain_percent = 10;
  bool operator==(const CompressSpec&) const = default;
};
struct AdaptationSpec {
  Choice<AdaptationMode> mode = AdaptationMode::kAuto;
  int evaluation_interval_seconds = 5;
  TierSpec retune{true, 60, 3}, regroup{true, 600, 10}, replace{false, 1800, 30};
  CompressSpec compress;
  int window_seconds = 0;  // 0 = five scrape intervals
  int stale_after_seconds = 60;
  bool operator==(const AdaptationSpec&) const = default;
};

struct FailureRule {
  std::string name;
  Choice<RuleAction> action = "";
  std::vector<int> exit_codes;
  std::vector<std::string> pod_conditions;
  bool operator==(const FailureRule&) const = default;
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
  Choice<SyncMode> sync_mode = SyncMode::kExact;
  int sync_max_staleness = 6;
  std::optional<int> sync_group_size_max;
  bool sync_rebalance = true;
  AdaptationSpec adaptation;
  Choice<PlacementMode> placement_mode = PlacementMode::kLateBinding;
  std::vector<std::string> topology_keys{"kubernetes.io/hostname"};
  std::string scheduler_name;
  int scheduling_timeout_seconds = 600;
  std::string gang_provider = "Auto", gang_queue;
  std::string network_interface, transport = "Auto";
  bool host_network = false;
  std::optional<int> connections_per_link;  // network.connectionsPerLink; 0 = by measuring
  std::string congestion_control;
  std::optional<int> boundary_dscp, bulk_dscp;
  std::string shared_memory = "1Gi";
  std::string checkpoint_path;   // "" = the spec has no block checkpoint
  std::string checkpoint_claim;  // persistentVolumeClaim.claimName
  std::optional<int> checkpoint_grace_seconds, checkpoint_interval_steps;
  std::optional<int> max_lost_steps;  // recovery.maxLostSteps
  Choice<NeighborCopies> neighbor_copies = NeighborCopies::kAuto;
  std::optional<int> lost_after_seconds;  // recovery.lostAfterSeconds
  int max_restarts = 6;
  Choice<RestartScope> restart_scope = RestartScope::kWorker;
  std::vector<FailureRule> failure_rules;
  int startup_timeout_seconds = 900, progress_deadline_seconds = 1800;
  std::optional<std::int64_t> active_deadline_seconds;
  std::optional<int> ttl_seconds_after_finished;
  Choice<CleanupPolicy> cleanup_policy = CleanupPolicy::kRunning;
  bool operator==(const JobSpec&) const = default;
};

struct PipelineJob {
  ObjectMeta meta;
  JobSpec spec;
  JobStatus status;
  ReportStatus report;
};

}  // namespace weir::api
