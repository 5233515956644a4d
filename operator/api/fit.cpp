// SPDX-License-Identifier: Apache-2.0
#include "operator/api/fit.h"

#include <algorithm>
#include <initializer_list>
#include <vector>

namespace weir::api {
namespace {

// maxLength and maxItems of status in crds/pipelinejobs.weir.dev.yaml.
constexpr std::size_t kMostConditions = 16, kMostType = 316, kMostConditionReason = 1024,
                      kMostMessage = 32768;
constexpr std::size_t kMostSelector = 4096, kMostReason = 64, kMostNumber = 32, kMostHash = 16;
constexpr std::size_t kMostCauses = 32, kMostGroups = 16, kMostGroupName = 12;
constexpr std::size_t kMostPendingReason = 1024, kMostNodes = 16, kMostNodeReason = 256;
constexpr std::size_t kMostObjectName = 253, kMostStages = 256, kMostLinks = 16, kMostShares = 256,
                      kMostLines = 16, kMostRanks = 64, kMostSeen = 8, kMostCauseText = 512;
constexpr std::int64_t kMostTerm = 1'000'000;
constexpr std::size_t kMostSplit = 128, kMostModelText = 256, kMostFolder = 4096,
                      kMostRecovery = 1024, kMostRestarted = 4096, kMostReplicas = 256,
                      kMostLosses = 64;

void shorten(std::string& text, std::size_t limit) {
  if (text.size() > limit) text = cut(text, limit);
}

void shorten(std::initializer_list<std::string*> texts, std::size_t limit) {
  for (std::string* text : texts) shorten(*text, limit);
}

template <class T>
void shorten(std::vector<T>& list, std::size_t limit) {
  if (list.size() > limit)
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(limit), list.end());
}

}  // namespace

std::string cut(const std::string& text, std::size_t limit) {
  if (text.size() <= limit) return text;
  std::size_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end);
}

void fit(ModelStatus& model) {
  shorten({&model.name, &model.engine}, kMostModelText);
  shorten(model.exported, kMostFolder);
}

void fit(JobStatus& status) {
  shorten(status.conditions, kMostConditions);
  for (Condition& each : status.conditions) {
    shorten(each.type, kMostType);
    shorten(each.reason, kMostConditionReason);
    shorten(each.message, kMostMessage);
    each.observed_generation = std::max<std::int64_t>(each.observed_generation, 0);
  }
  shorten(status.selector, kMostSelector);
  shorten({&status.workers_summary, &status.gang_provider}, kMostNumber);
  fit(status.model);
  shorten(status.template_hash, kMostHash);
  shorten(status.last_restart_reason, kMostReason);
  shorten(status.restart_reasons, kMostCauses);
  for (RestartCount& each : status.restart_reasons) shorten(each.reason, kMostReason);
  shorten(status.avoided_nodes, kMostNodes);
  for (AvoidedNode& each : status.avoided_nodes) {
    shorten(each.node, kMostObjectName);
    shorten(each.reason, kMostNodeReason);
  }
  shorten(status.recovery.spares, kMostNumber);
  shorten(status.recovery.copies, kMostRecovery);
  shorten(status.recovery.lost_replicas, kMostReplicas);
  shorten(status.recovery.container_restarts, kMostRestarted);
  for (ContainerRestarts& each : status.recovery.container_restarts) {
    shorten(each.pod_uid, kMostReason);
  }
  shorten(status.recovery.losses, kMostLosses);
  for (WorkerLoss& each : status.recovery.losses) shorten(each.worker, kMostObjectName);
  if (status.recovery.last) {
    shorten({&status.recovery.last->source, &status.recovery.last->pause_seconds}, kMostNumber);
    shorten(status.recovery.last->reason, kMostRecovery);
  }
  if (status.coordinator) {
    shorten(status.coordinator->pod, kMostObjectName);
    shorten({&status.coordinator->pod_uid, &status.coordinator->lost_pod_uid}, kMostReason);
    status.coordinator->term = std::clamp<std::int64_t>(status.coordinator->term, 1, kMostTerm);
  }
  shorten(status.memory_limits, kMostGroups);
  for (MemoryLimit& each : status.memory_limits) shorten(each.group, kMostGroupName);
  shorten(status.worker_groups, kMostGroups);
  for (GroupStatus& each : status.worker_groups) {
    shorten(each.name, kMostGroupName);
    shorten(each.pending_reason, kMostPendingReason);
  }
  PlanStatus& plan = status.plan;
  shorten(plan.config_map, kMostObjectName);
  shorten({&plan.predicted_step_seconds, &plan.predicted_gain_percent, &plan.measured_gain_percent,
           &plan.predicted_gain_interval, &plan.measured_gain_error},
          kMostNumber);
  shorten(plan.split, kMostSplit);
  shorten(plan.stages, kMostStages);
  for (StageStatus& each : plan.stages) {
    shorten(each.worker_group, kMostGroupName);
    shorten(each.node, kMostObjectName);
  }
  shorten(status.last_replan_request, kMostReplanRequest);
}

void fit(ReportStatus& status) {
  status.percentage = std::clamp(status.percentage, 0, 100);
  shorten({&status.samples_per_second, &status.loss, &status.bubble_percent,
           &status.sync_mean_group_size, &status.sync_max_staleness},
          kMostNumber);
  shorten(status.worst_links, kMostLinks);
  for (WorstLink& each : status.worst_links) {
    shorten({&each.from_node, &each.to_node}, kMostObjectName);
    shorten({&each.bandwidth, &each.baseline, &each.latency_milliseconds}, kMostNumber);
  }
  shorten(status.micro_batch_shares, kMostShares);
  Performance& performance = status.performance;
  shorten(performance.slowest_node, kMostObjectName);
  shorten(performance.step_milliseconds, kMostNumber);
  shorten(performance.lines, kMostLines);
  shorten(performance.ranks, kMostRanks);
  for (PerformanceLine& each : performance.lines) {
    shorten({&each.line, &each.milliseconds}, kMostNumber);
  }
  shorten({&performance.cause, &performance.cause_seconds, &performance.remedy_seconds},
          kMostNumber);
  shorten({&performance.cause_text, &performance.remedy}, kMostCauseText);
  shorten(performance.also_seen, kMostSeen);
  for (PerformanceCause& each : performance.also_seen) {
    shorten({&each.cause, &each.seconds}, kMostNumber);
    shorten(each.text, kMostCauseText);
  }
  shorten(performance.remedies, kMostSeen);
  for (PerformanceRemedy& each : performance.remedies) {
    shorten({&each.step_seconds, &each.saves_seconds}, kMostNumber);
    shorten({&each.text, &each.answer}, kMostCauseText);
  }
}

}  // namespace weir::api
