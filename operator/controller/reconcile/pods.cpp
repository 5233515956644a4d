// SPDX-License-Identifier: Apache-2.0
// Which pods a job needs, which there are, and which are to be created (operator.md 5).
#include <map>

#include "operator/controller/reconcile/pass.h"

namespace weir::reconcile {
namespace {

// The newest attempt of each worker. Attempt and index come from our own labels, never from parsing
// names.
std::map<int, Slot> newest_pods(const Pass& pass) {
  std::map<int, Slot> found;
  for (const auto& pod : pass.snapshot.pods) {
    const auto& labels = pod->meta.labels;
    const auto index = labels.find("weir.dev/worker-index");
    const auto attempt = labels.find("weir.dev/attempt");
    if (index == labels.end() || attempt == labels.end()) continue;
    if (pod->meta.owner_uid != pass.job().meta.uid) continue;
    Slot& slot = found[std::atoi(index->second.c_str())];
    const int number = std::atoi(attempt->second.c_str());
    if (number + 1 > slot.next_attempt) {
      slot.next_attempt = number + 1;
      slot.pod = pod;
    }
  }
  return found;
}

api::PodInput input_of(const Pass& pass, const Slot& slot) {
  const Slot& first = pass.slots.front();
  api::PodInput input;
  input.group = slot.group;
  input.index_in_group = slot.index_in_group;
  input.worker_index = slot.worker_index;
  input.attempt = slot.next_attempt;
  input.workers = static_cast<int>(pass.slots.size());
  input.coordinator = api::pod_name(pass.job().meta.name, first.group, first.index_in_group, 0) +
                      "." + pass.job().meta.name + ":7070";
  input.control_url = pass.snapshot.control_url;
  return input;
}

// A worker that failed before it ever ran a step waits longer each time (operator.md 6.4).
std::optional<Time> not_before(const Pass& pass, const Slot& slot) {
  const auto& last = pass.status.last_restart_time;
  if (!slot.pod || !last) return std::nullopt;
  for (const auto& failure : pass.failures) {
    if (failure.slot->worker_index != slot.worker_index || failure.in_plan || failure.disruption)
      continue;
    const int doubling = std::min(std::max(pass.status.restart_budget_used - 1, 0), 16);
    return *last + std::min<std::chrono::seconds>(pass.tunables.restart_backoff * (1 << doubling),
                                                  pass.tunables.restart_backoff_cap);
  }
  return std::nullopt;
}

}  // namespace

bool pod_ended(const api::Pod& pod) {
  return pod.phase == "Failed" || pod.phase == "Succeeded";
}

void find_slots(Pass& pass) {
  auto found = newest_pods(pass);
  int worker = 0;
  for (const auto& group : pass.spec().worker_groups) {
    for (int i = 0; i < group.count * pass.spec().data_parallel; ++i) {
      Slot slot = std::move(found[worker]);
      slot.group = group.name;
      slot.index_in_group = i;
      slot.worker_index = worker++;
      pass.slots.push_back(std::move(slot));
    }
  }
}

void create_pods(Pass& pass) {
  CreatePods create;
  for (const auto& slot : pass.slots) {
    const bool needed = !slot.pod || pod_ended(*slot.pod) || slot.pod->meta.deleting;
    if (!needed) continue;
    // A worker that is done while the coordinator still finishes is no reason for a new pod.
    if (slot.pod && slot.pod->phase == "Succeeded") continue;
    const auto earliest = not_before(pass, slot);
    if (earliest && *earliest > pass.now()) {
      pass.wake_at(*earliest);
      continue;
    }
    create.pods.push_back(input_of(pass, slot));
  }
  if (!create.pods.empty()) pass.act(std::move(create));
}

}  // namespace weir::reconcile
