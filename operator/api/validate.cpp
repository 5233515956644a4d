// SPDX-License-Identifier: Apache-2.0
#include "operator/api/validate.h"

#include <algorithm>

namespace weir::api {
namespace {

constexpr int kScrapesPerWindow = 4;  // a rate of fewer samples is noise

Refusal not_implemented(const std::string& field, const std::string& value,
                        const std::string& advice) {
  return {"NotImplemented", field + ": " + value + " is not implemented yet, " + advice};
}

std::optional<Refusal> refuse_groups(const JobSpec& spec) {
  for (const WorkerGroup& group : spec.worker_groups) {
    const std::string at = "workerGroups[" + group.name + "].";
    if (group.ranks_per_worker > 1) {
      return not_implemented(at + "ranksPerWorker", std::to_string(group.ranks_per_worker),
                             "set it to 1 and use one pod for each device");
    }
    if (group.spares < 0 || group.spares > kMostSpares) {  // admission refuses it, too
      return Refusal{"InvalidSpec", at + "spares: " + std::to_string(group.spares) +
                                        " is not in 0 .. " + std::to_string(kMostSpares)};
    }
  }
  return std::nullopt;
}

std::optional<Refusal> refuse_size(const JobSpec& spec) {
  // Admission refuses this too, also for `kubectl scale`; a CRD of another version may not.
  const int least = std::max(1, spec.data_parallel * spec.micro_batch_size.value_or(1));
  if (spec.data_parallel < 1 || spec.global_batch % least != 0) {
    return Refusal{"InvalidSpec",
                   "parallelism.dataParallel: " + std::to_string(spec.data_parallel) +
                       (spec.micro_batch_size
                            ? " x batch.microBatchSize " + std::to_string(*spec.micro_batch_size)
                            : "") +
                       " does not divide batch.globalBatchSize " +
                       std::to_string(spec.global_batch) + "; choose a size that does"};
  }
  if (spec.min_data_parallel && *spec.min_data_parallel != spec.data_parallel) {
    return not_implemented("parallelism.minDataParallel", std::to_string(*spec.min_data_parallel),
                           "remove it");
  }
  return refuse_groups(spec);
}

std::optional<Refusal> refuse_placement(const JobSpec& spec) {
  if (!spec.placement_mode.known()) {
    return not_implemented("placement.mode", spec.placement_mode.text(),
                           "set it to LateBinding or Pinned");
  }
  if (!spec.network_interface.empty()) {
    return not_implemented("network.interface", spec.network_interface,
                           "remove it; data uses the pod's own address");
  }
  return std::nullopt;
}

std::optional<Refusal> refuse_adaptation(const AdaptationSpec& adaptation, int scrape_seconds) {
  if (adaptation.window_seconds > 0 &&
      adaptation.window_seconds < kScrapesPerWindow * scrape_seconds) {
    return Refusal{"InvalidSpec", "adaptation.metrics.windowSeconds: " +
                                      std::to_string(adaptation.window_seconds) + " is below " +
                                      std::to_string(kScrapesPerWindow) + " scrape intervals of " +
                                      std::to_string(scrape_seconds) + " s, set it to at least " +
                                      std::to_string(kScrapesPerWindow * scrape_seconds)};
  }
  if (!adaptation.compress.coarsest.known()) {
    return not_implemented("adaptation.compress.coarsest", adaptation.compress.coarsest.text(),
                           "set it to BF16, Int8 or Int6");
  }
  return std::nullopt;
}

// Admission refuses these too; a CRD of another version may not.
std::optional<Refusal> refuse_failure_policy(const JobSpec& spec) {
  for (const FailureRule& rule : spec.failure_rules) {
    const std::string at = "failurePolicy.rules[" + rule.name + "]";
    if (!rule.action.known()) {
      return not_implemented(at + ".action", rule.action.text(),
                             "use FailJob, Restart, RestartIgnoreMax or ReplaceWorkerAvoidNode");
    }
    if (rule.exit_codes.empty() && rule.pod_conditions.empty()) {
      return Refusal{"InvalidSpec", at + ": has neither onExitCodes nor onPodConditions"};
    }
  }
  if (!spec.restart_scope.known()) {
    return not_implemented("failurePolicy.restartScope", spec.restart_scope.text(),
                           "set it to Worker or Job");
  }
  return std::nullopt;
}

}  // namespace

std::optional<Refusal> refuse(const JobSpec& spec, int scrape_interval_seconds) {
  if (spec.worker_groups.empty()) {
    return Refusal{"InvalidSpec", "workerGroups: empty, name at least one group"};
  }
  if (auto refusal = refuse_size(spec)) return refusal;
  if (!spec.sync_mode.known()) {
    return not_implemented("sync.mode", spec.sync_mode.text(), "set it to Exact, Partial or Auto");
  }
  if (auto refusal = refuse_adaptation(spec.adaptation, scrape_interval_seconds)) return refusal;
  if (auto refusal = refuse_placement(spec)) return refusal;
  if (!spec.neighbor_copies.known()) {
    return not_implemented("recovery.neighborCopies", spec.neighbor_copies.text(),
                           "set it to Auto, On or Off");
  }
  return refuse_failure_policy(spec);
}

void set_condition(std::vector<Condition>& conditions, Condition condition) {
  const auto old = std::ranges::find(conditions, condition.type, &Condition::type);
  if (old == conditions.end()) {
    conditions.push_back(std::move(condition));
    return;
  }
  if (old->status == condition.status) condition.since = old->since;
  *old = std::move(condition);
}

const Condition* find_condition(const std::vector<Condition>& conditions, const std::string& type) {
  const auto found = std::ranges::find(conditions, type, &Condition::type);
  return found == conditions.end() ? nullptr : &*found;
}

}  // namespace weir::api
