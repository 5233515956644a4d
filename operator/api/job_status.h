// SPDX-License-Identifier: Apache-2.0
// Status of a PipelineJob as structs (crds/README.md "Status"). Two field owners write it:
// JobStatus holds decisions and counts, ReportStatus holds measurements. Pure data. Its JSON is in
// status_fields.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/objects.h"

namespace weir::api {

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
  std::string predicted_gain_interval, measured_gain_error;  // 80 %, in percent; standard error
  std::string codecs;  // of boundaries that are not raw, "1-2:Int8"
  std::string split;   // what stages hold and postpone, or "no" and why
  // How far the step is above what no order can beat, simulated and measured.
  std::optional<int> bound_percent_simulated, bound_percent_measured;
  std::optional<Time> time;
  std::vector<StageStatus> stages;
  bool operator==(const PlanStatus&) const = default;
};

// The model, as the workers describe it.
struct ModelStatus {
  std::string name, engine;
  int layers = 0;
  std::int64_t parameters = 0;  // their number; 0 = nothing is known of the model
  std::string exported;         // the folder of Hugging Face that holds the trained model
  bool operator==(const ModelStatus&) const = default;
};

struct AvoidedNode {
  std::string node, reason;
  Time until{};
  bool operator==(const AvoidedNode&) const = default;
};

struct RestartCount {  // restarts of one cause; weir_job_restarts_total shows it
  std::string reason;
  int count = 0;
  bool operator==(const RestartCount&) const = default;
};

// Where training went on after a worker was lost.
struct Recovery {
  // Peers: what the other workers hold. Copies: snapshots of an earlier step, in memory.
  // Checkpoint. Start: step 0.
  std::string source;
  std::string reason;  // why it is Checkpoint or Start
  std::string pause_seconds;
  std::int64_t step = 0;
  std::int64_t lost_steps = 0;  // that were complete, and are done again
  std::optional<Time> time;
  bool operator==(const Recovery&) const = default;
};

// Ends of a trainer that its kubelet has restarted in its pod.
struct ContainerRestarts {
  std::string pod_uid;
  int count = 0;
  bool operator==(const ContainerRestarts&) const = default;
};

// The last loss of a worker, kept while it decides whether the next one uses the restart budget.
struct WorkerLoss {
  std::string worker;     // name of its first pod
  std::int64_t step = 0;  // completed steps
  bool operator==(const WorkerLoss&) const = default;
};
struct RecoveryStatus {
  std::string copies;           // protocol::Report::snapshots
  std::string spares;           // that have joined, of those wanted, as "1/2"; "" = none wanted
  std::int64_t lost_steps = 0;  // of all recoveries; weir_job_lost_steps_total shows it
  std::optional<Recovery> last;
  int incarnation = 0;  // of the applied plan: how often its workers have joined again
  std::vector<ContainerRestarts> container_restarts;
  std::vector<WorkerLoss> losses;
  std::optional<Time> recoverable_until;   // when condition Recoverable was last True
  std::vector<int> lost_replicas;          // protocol::Report::lost_replicas
  std::optional<Time> last_container_end;  // of those that were counted as a restart
  bool operator==(const RecoveryStatus&) const = default;
};

// A worker other than that of index 0 coordinates (worker/protocol/README.md "Terms").
struct CoordinatorStatus {
  std::string pod, pod_uid;
  std::string lost_pod_uid;  // that coordinated before, and was no longer heard
  std::int64_t term = 0;     // protocol::CoordinatorPlace::term
  std::optional<Time> time;  // when it was named
  bool operator==(const CoordinatorStatus&) const = default;
};

// A group that ran out of memory. Later plans keep at most in_flight_cap micro-batches in flight on
// its stage.
struct MemoryLimit {
  std::string group;
  int stage = -1;             // -1 = there was no plan yet
  int in_flight_cap = 0;      // 0 = no limit
  bool plan_changed = false;  // after the failure, by more than a restart
  bool operator==(const MemoryLimit&) const = default;
};

// Field owner weir-operator.
struct JobStatus {
  std::int64_t observed_generation = 0;
  std::vector<Condition> conditions;  // without those of other controllers
  std::optional<Time> start_time, completion_time, last_restart_time;
  int data_parallel = 1;
  std::string selector, workers_summary, template_hash, gang_provider;
  std::int64_t suspended_seconds = 0;
  int restarts = 0, restart_budget_used = 0;
  int restart_streak = 0;  // restarts in a row without a completed step
  // Each restart, resume and release raises this number. A pod has it as annotation
  // weir.dev/pod-generation.
  int pod_generation = 0;
  int resumed_generation = 0;  // pod_generation of the last resume; 0 = never resumed
  std::string last_restart_reason, last_restart_scope;  // scope: Worker, Job
  std::vector<RestartCount> restart_reasons;
  std::vector<AvoidedNode> avoided_nodes;
  std::vector<MemoryLimit> memory_limits;
  RecoveryStatus recovery;
  std::optional<CoordinatorStatus> coordinator;  // nothing: of index 0, in the first term
  int scheduling_timeouts = 0;                   // in a row
  std::optional<Time> scheduling_retry;          // set: all pods are released until then
  std::vector<GroupStatus> worker_groups;
  ModelStatus model;
  PlanStatus plan;
  std::optional<Time> retune_last_change;
  int retune_cooldown_seconds = 0;
  std::optional<Time> regroup_last_change, replace_last_change, compress_last_change;
  int regroup_cooldown_seconds = 0, replace_cooldown_seconds = 0, compress_cooldown_seconds = 0;
  std::string last_replan_request;
  bool operator==(const JobStatus&) const = default;
};

struct WorstLink {
  std::string from_node, to_node, bandwidth, baseline, latency_milliseconds;
  int from_stage = 0, to_stage = 0;
  std::optional<Time> since;
  bool operator==(const WorstLink&) const = default;
};

// Codecs of the tensors between two stages, since when, and what they do to a step.
struct LinkCompression {
  std::string link, forward, backward;  // "1-2" "Int8" "Raw"
  std::int64_t since_step = 0;
  std::string error_ratio;  // relative error of rounding, the largest of its links
  std::int64_t payload_bytes = 0, wire_bytes = 0;  // of a step, both ways, of all replicas
  bool operator==(const LinkCompression&) const = default;
};

// Where a step goes, of the steps that the newest report measured (operator/explain/README.md).
struct PerformanceLine {
  std::string line, milliseconds;
  bool operator==(const PerformanceLine&) const = default;
};
struct PerformanceRank {  // of that replica; percent of a step
  int stage = 0, busy = 0, late = 0, link = 0, full = 0, replicas = 0, update = 0;
  std::optional<int> throttled = {};  // by its CPU limit; nothing: its worker tells of none
  bool operator==(const PerformanceRank&) const = default;
};
struct PerformanceCause {  // seconds: that a step would save without it
  std::string cause, text, seconds;
  bool operator==(const PerformanceCause&) const = default;
};
struct PerformanceRemedy {
  std::string text, step_seconds, saves_seconds, answer;
  bool operator==(const PerformanceRemedy&) const = default;
};
struct Performance {
  std::string step_milliseconds;  // "" = nothing is known
  int steps = 0, slowest_stage = 0;
  std::string slowest_node;
  std::vector<PerformanceLine> lines;  // add up to a step
  int replica = 0;                     // that waits least for the others
  std::vector<PerformanceRank> ranks;
  std::string cause, cause_text, cause_seconds;  // "" = none is known
  std::vector<PerformanceCause> also_seen;
  std::string remedy, remedy_seconds;  // the first one, and the step that it would give
  std::vector<PerformanceRemedy> remedies;
  bool operator==(const Performance&) const = default;
};

// Field owner weir-operator-report.
struct ReportStatus {
  std::int64_t step = 0, total_steps = 0;
  int percentage = 0;
  std::string samples_per_second, loss, bubble_percent;
  std::optional<std::int64_t> estimated_remaining_seconds;
  std::optional<Time> last_step_time, last_report_time;
  std::optional<std::int64_t> last_checkpoint_step;
  std::int64_t compressed_steps = 0;  // of `step`, those with codecs
  bool has_progress = false;
  std::string network_state;  // Healthy, Hidden, Contended, Unknown; "" = not evaluated yet
  std::optional<Time> last_sample_time;
  std::vector<WorstLink> worst_links;
  std::vector<LinkCompression> compression;  // at most 16
  std::string sync_mode;
  int sync_group_size_max = 0;                           // 0 = the job has one replica
  std::string sync_mean_group_size, sync_max_staleness;  // "" = unknown
  std::vector<int> micro_batch_shares;
  Performance performance;
  bool operator==(const ReportStatus&) const = default;
};

}  // namespace weir::api
