// SPDX-License-Identifier: Apache-2.0
// Finds the pods of a job's slots, and decides which pods are made and which are deleted
// (operator/controller/reconcile/README.md "Pods").
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include "operator/api/names.h"
#include "operator/controller/reconcile/lifecycle/lifecycle.h"
#include "worker/base/worker_index.h"

namespace weir::reconcile {
namespace {

constexpr std::chrono::seconds kGoneAfterGrace{10};  // the kubelet kills at the end of the grace

// Name of attempt 0, such as "job-gpu-3" for "job-gpu-3-2", whose label says attempt 2; "" = the
// operator has not made this pod.
std::string stem_of(const api::Pod& pod) {
  const std::string attempt = label_of(pod, api::kAttempt);
  if (attempt.empty()) return "";
  if (attempt == "0") return pod.meta.name;
  const std::string& name = pod.meta.name;
  if (!name.ends_with("-" + attempt)) return "";
  return name.substr(0, name.size() - attempt.size() - 1);
}

// The pod of the newest attempt of each slot, by the name of attempt 0.
std::map<std::string, Slot> newest_pods(const View& view) {
  std::map<std::string, Slot> found;
  for (const auto& pod : view.snapshot.pods) {
    if (pod->meta.owner_uid != view.job().meta.uid) continue;
    const std::string stem = stem_of(*pod);
    if (stem.empty()) continue;
    Slot& slot = found[stem];
    const int number = std::atoi(label_of(*pod, api::kAttempt).c_str());
    if (number + 1 > slot.next_attempt) {
      slot.next_attempt = number + 1;
      slot.pod = pod;
    }
  }
  return found;
}

// Skips attempts whose pod name exists already. It may belong to another group (attempt 2 of "g" 1
// and attempt 0 of "g-1" 2 are both "job-g-1-2"), or to another job (group "w-b" of job "a" and
// group "b" of job "a-w" both have "a-w-b-0").
void skip_taken_names(View& view, const std::set<std::string_view>& taken, Slot& slot) {
  while (taken.contains(
      api::pod_name(view.job().meta.name, slot.group, slot.index_in_group, slot.next_attempt))) {
    ++slot.next_attempt;
  }
}

// Kubelets restart single containers from Kubernetes 1.35 on. An API server is never older than
// its kubelets, so it knows the field, too.
bool kubelets_restart_containers(const View& view) {
  constexpr int kSince = 35;
  const auto& nodes = *view.snapshot.nodes;
  return !nodes.empty() && std::ranges::all_of(nodes, [](const auto& entry) {
    return entry.second->kubelet_minor >= kSince;
  });
}

// The exit codes after which a pod stays ended: those that say more than that the process is gone,
// so that the table of causes or a rule of the user decides about pod, node or job. Empty: it stays
// ended after all.
std::vector<int> final_exit_codes(const View& view) {
  const api::JobSpec& spec = view.spec();
  if (spec.restart_scope == api::RestartScope::kJob || !kubelets_restart_containers(view))
    return {};
  std::set<int> codes{static_cast<int>(protocol::Exit::kFinished)};
  for (const CauseRow& cause : kCauses) {
    if (cause.cause != Cause::kPeerLost) codes.insert(static_cast<int>(cause.exit));
  }
  for (const auto& rule : spec.failure_rules) {
    codes.insert(rule.exit_codes.begin(), rule.exit_codes.end());
  }
  return {codes.begin(), codes.end()};
}

api::PodInput input_of(const View& view, const Draft& draft, const Slot& slot,
                       const std::string& pod_group) {
  const Slot& first = view.slots.front();
  api::PodInput input;
  input.group = slot.group;
  input.index_in_group = slot.index_in_group;
  input.worker_index = slot.worker_index;
  input.attempt = slot.next_attempt;
  input.workers = workers_of(view);
  input.coordinator = first_pod_name(view, first) + "." + view.job().meta.name + ":7070";
  input.control_url = view.snapshot.control_url;
  input.generation = draft.status.pod_generation;
  for (const auto& avoided : draft.status.avoided_nodes) {
    (is_last_resort(avoided) ? input.last_nodes : input.avoided_nodes).push_back(avoided.node);
  }
  auto marks = gang::marks(view.provider, view.job(), slot.group, pod_group,
                           static_cast<int>(view.slots.size()));
  input.labels = std::move(marks.labels);
  input.annotations = std::move(marks.annotations);
  input.scheduler_name = std::move(marks.scheduler_name);
  input.gates = gates_of(view.spec());
  input.queued = view.provider != gang::Provider::kNone;
  return input;
}

// Without those of closed pod groups: the mark that closes a group is on one pod, and the others
// may still be in the cache when that one is gone.
gang::Pods made_since_resume(const View& view, const Draft& draft) {
  gang::Pods pods;
  std::ranges::copy_if(view.snapshot.pods, std::back_inserter(pods), [&](const auto& pod) {
    return generation_of(*pod) >= draft.status.resumed_generation;
  });
  return pods;
}

const Failure* found_failure(const View& view, const Slot& slot) {
  for (const auto& failure : view.failures) {
    if (failure.slot == &slot) return &failure;
  }
  return nullptr;
}

// Whether the slot needs a new pod now.
bool wants_pod(const View& view, const Draft& draft, const Slot& slot) {
  if (const Failure* failure = found_failure(view, slot)) return failure->recorded;
  if (!slot.pod || outdated(draft, *slot.pod)) return true;
  // A worker that is done while the coordinator still finishes is no reason for a new pod.
  return !worker_done(*slot.pod) && (worker_failed(*slot.pod) || slot.pod->meta.deleting);
}

// A spare must not take the room of a worker. Kueue lets in only a whole group.
bool workers_come_first(const View& view) {
  return view.provider != gang::Provider::kKueue &&
         std::ranges::any_of(view.slots, [](const Slot& slot) {
           return !slot.spare && (!slot.pod || slot.pod->node.empty());
         });
}

// The whole group waits for Kueue, as after an eviction: it is not let in before its spares are
// made again, so they must not come later than the workers.
bool waits_for_its_group(const View& view) {
  return view.provider == gang::Provider::kKueue &&
         std::ranges::any_of(view.slots, [](const Slot& slot) {
           return !slot.spare && (lacks_pod(slot) || slot.pod->node.empty());
         });
}

// Earliest time of new pods after a restart. A job that fails before it completes a step waits
// longer each time, because it may never complete one.
std::optional<Time> not_before(const View& view, const Draft& draft) {
  const auto& last = draft.status.last_restart_time;
  if (!last || draft.status.restart_streak == 0) return std::nullopt;
  constexpr int kMostDoublings = 16;  // enough to reach the cap
  const int doublings = std::min(draft.status.restart_streak - 1, kMostDoublings);
  return *last + std::min<std::chrono::seconds>(view.tunables.restart_backoff * (1 << doublings),
                                                view.tunables.restart_backoff_cap);
}

// Whether the failure of this pod's worker is recorded.
bool failure_recorded(const View& view, const api::Pod& pod) {
  return std::ranges::any_of(view.failures, [&](const Failure& failure) {
    return failure.recorded && failure.slot != nullptr && failure.slot->pod &&
           failure.slot->pod->meta.uid == pod.meta.uid;
  });
}

}  // namespace

std::string first_pod_name(const View& view, const Slot& slot) {
  return api::pod_name(view.job().meta.name, slot.group, slot.index_in_group, 0);
}

bool is_of_slot(const View& view, const Slot& slot, const std::string& pod) {
  const std::string stem = first_pod_name(view, slot);
  if (pod == stem) return true;
  return pod.starts_with(stem + "-") &&
         pod.find_first_not_of("0123456789", stem.size() + 1) == std::string::npos;
}

std::string label_of(const api::Pod& pod, const char* key) {
  const auto found = pod.meta.labels.find(key);
  return found == pod.meta.labels.end() ? "" : found->second;
}

bool replaced_by_restart(const Draft& draft, const api::Pod& pod) {
  return draft.status.last_restart_scope == "Job" &&
         generation_of(pod) < draft.status.pod_generation;
}

bool pod_ended(const api::Pod& pod) {
  return pod.phase == "Failed" || pod.phase == "Succeeded";
}

bool outdated(const Draft& draft, const api::Pod& pod) {
  const auto hash = pod.meta.annotations.find(api::kTemplateHash);
  return !pod.started && !worker_ended(pod) && !draft.status.template_hash.empty() &&
         hash != pod.meta.annotations.end() && hash->second != draft.status.template_hash;
}

bool lacks_pod(const Slot& slot) {
  return !slot.pod || worker_failed(*slot.pod);
}

int generation_of(const api::Pod& pod) {
  const auto found = pod.meta.annotations.find(api::kPodGeneration);
  return found == pod.meta.annotations.end() ? 0 : std::atoi(found->second.c_str());
}

const api::Node* node_of(const View& view, const std::string& name) {
  const auto found = view.snapshot.nodes->find(name);
  return found == view.snapshot.nodes->end() ? nullptr : found->second.get();
}

bool still_there(const View& view, const api::Pod& pod) {
  if (pod_ended(pod)) return false;
  if (!pod.meta.deleting) return true;
  const api::Node* node = node_of(view, pod.node);
  if (node != nullptr && !node->ready) return false;
  return view.now() < *pod.meta.deleting + kGoneAfterGrace;
}

bool remove_all_pods(const View& view, Draft& draft, const std::string& why) {
  bool none = true;
  for (const auto& pod : view.snapshot.pods) {
    if (!still_there(view, *pod)) continue;
    none = false;
    if (const auto& deleting = pod->meta.deleting) {
      draft.wake_at(*deleting + kGoneAfterGrace);
    } else {
      draft.ask(DeletePod{pod->meta.name, pod->meta.uid, why});
    }
  }
  return none;
}

// Worker indices are counted replica by replica, so that they stay when replicas are added or
// removed.
void find_slots(View& view) {
  const int replicas = std::max(view.wanted_replicas, view.needed_replicas);
  const auto found = newest_pods(view);
  std::set<std::string_view> taken(view.snapshot.taken_names.begin(),
                                   view.snapshot.taken_names.end());
  for (const auto& pod : view.snapshot.pods) taken.insert(pod->meta.name);
  int worker = 0;
  for (int replica = 0; replica < replicas; ++replica) {
    for (const auto& group : view.spec().worker_groups) {
      for (int i = 0; i < group.count; ++i) {
        const int index = replica * group.count + i;
        view.slots.push_back({.group = group.name,
                              .index_in_group = index,
                              .worker_index = worker++,
                              .replica = replica});
      }
    }
  }
  for (Slot& spare : spare_slots(view)) view.slots.push_back(std::move(spare));
  for (Slot& slot : view.slots) {
    const auto pods = found.find(first_pod_name(view, slot));
    if (pods != found.end()) {
      slot.pod = pods->second.pod;
      slot.next_attempt = pods->second.next_attempt;
    }
    skip_taken_names(view, taken, slot);
  }
  assign_roles(view);
}

void create_pods(const View& view, Draft& draft) {
  // After a restart of scope Job, the old processes must have ended before new ones start, because
  // they use the same names and devices.
  for (const auto& pod : view.snapshot.pods) {
    if (!replaced_by_restart(draft, *pod) || !still_there(view, *pod)) continue;
    if (const auto& deleting = pod->meta.deleting) draft.wake_at(*deleting + kGoneAfterGrace);
    return;
  }
  const auto earliest = not_before(view, draft);
  const bool spares_wait = workers_come_first(view), group_waits = waits_for_its_group(view);
  const std::string pod_group =
      gang::pod_group_name(view.job(), made_since_resume(view, draft), draft.status.pod_generation);
  CreatePods create;
  for (const auto& slot : view.slots) {
    if (!wants_pod(view, draft, slot) || (slot.spare && spares_wait)) continue;
    if (const auto again = grows_again_at(slot);
        again && !needed(view, slot) && !group_waits && view.now() < *again) {
      draft.wake_at(*again);
      continue;
    }
    // Kueue counts a pod that is still ending, so it would delete the new pod as surplus.
    if (view.provider == gang::Provider::kKueue && slot.pod && still_there(view, *slot.pod)) {
      if (const auto& deleting = slot.pod->meta.deleting) {
        draft.wake_at(*deleting + kGoneAfterGrace);
      } else {
        draft.ask(DeletePod{slot.pod->meta.name, slot.pod->meta.uid, "another pod replaces it"});
      }
      continue;
    }
    // The first pods of a job, and pods after an edit of the template, do not wait.
    const bool first =
        slot.pod ? outdated(draft, *slot.pod)
                 : slot.next_attempt == 0 && view.plan == nullptr && draft.status.restarts == 0;
    if (!first && earliest && *earliest > view.now()) {
      draft.wake_at(*earliest);
      continue;
    }
    create.pods.push_back(input_of(view, draft, slot, pod_group));
  }
  if (create.pods.empty()) return;
  const std::vector<int> codes = final_exit_codes(view);
  for (api::PodInput& pod : create.pods) pod.final_exit_codes = codes;
  draft.ask(std::move(create));
}

void delete_pods(const View& view, Draft& draft, bool accepted) {
  std::set<std::string> newest, stems;
  for (const auto& slot : view.slots) {
    if (slot.pod) newest.insert(slot.pod->meta.uid);
    stems.insert(first_pod_name(view, slot));
  }
  // Without the plan of status the number of needed replicas is unknown.
  const bool size_known = accepted && (view.plan != nullptr || draft.status.plan.revision == 0);
  for (const auto& pod : view.snapshot.pods) {
    if (pod_ended(*pod) || pod->meta.deleting) continue;
    const bool old_attempt = !newest.contains(pod->meta.uid);
    if (old_attempt && !stems.contains(stem_of(*pod))) {
      if (!size_known) continue;
      const bool spare = is_spare(std::atoi(label_of(*pod, api::kWorkerIndex).c_str()));
      draft.ask(DeletePod{pod->meta.name, pod->meta.uid,
                          spare ? "fewer spares are wanted"
                                : "dataParallel is " + std::to_string(view.wanted_replicas)});
    } else if (old_attempt) {
      draft.ask(DeletePod{pod->meta.name, pod->meta.uid, "another pod has replaced it"});
    } else if (replaced_by_restart(draft, *pod)) {
      draft.ask(DeletePod{pod->meta.name, pod->meta.uid, "restart of the whole job"});
    } else if (worker_failed(*pod) && failure_recorded(view, *pod)) {
      // Other containers of the pod still run and hold its devices.
      draft.ask(DeletePod{pod->meta.name, pod->meta.uid, "its worker has ended"});
    }
  }
}

}  // namespace weir::reconcile
