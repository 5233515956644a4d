// SPDX-License-Identifier: Apache-2.0
// The number of replicas and its changes. If it grows, training continues until the new pods have
// registered. If it shrinks, the plan changes first, then the pods with the highest indices are
// deleted. This part has no memory: plans, pods and the accepted size in status are enough.
#include <map>
#include <set>

#include "operator/api/names.h"
#include "operator/controller/reconcile/lifecycle/lifecycle.h"
#include "worker/base/worker_index.h"

namespace weir::reconcile {
namespace {

using schedule::Plan;

int workers_per_replica(const View& view) {
  int workers = 0;
  for (const auto& group : view.spec().worker_groups) workers += group.count;
  return std::max(1, workers);
}

// Uids of pods that work or may start to: they have not failed, are not being deleted, and no later
// attempt has replaced them.
std::set<std::string> working_pods(const View& view) {
  std::map<std::string, std::pair<int, const api::Pod*>> newest;
  for (const auto& pod : view.snapshot.pods) {
    if (pod->meta.owner_uid != view.job().meta.uid) continue;
    const int attempt = std::atoi(label_of(*pod, api::kAttempt).c_str());
    auto& [highest, known] = newest[label_of(*pod, api::kWorkerIndex)];
    if (known != nullptr && attempt < highest) continue;
    highest = attempt;
    known = pod.get();
  }
  std::set<std::string> uids;
  for (const auto& [index, entry] : newest) {  // a worker that has done its last step counts, too
    if (!worker_failed(*entry.second) && !entry.second->meta.deleting)
      uids.insert(entry.second->meta.uid);
  }
  return uids;
}

bool runs_on(const std::set<std::string>& pods, const Plan& plan) {
  return std::ranges::all_of(plan.ranks,
                             [&](const auto& rank) { return pods.contains(rank.pod_uid); });
}

// The size that was accepted last. A spec that is not accepted does not change it.
int accepted_replicas(const View& view, const Draft& draft) {
  for (const auto& group : view.spec().worker_groups) {
    for (const auto& group_status : draft.status.worker_groups) {
      if (group_status.name == group.name && group_status.desired > 0 &&
          group_status.desired % group.count == 0)
        return group_status.desired / group.count;
    }
  }
  return draft.status.data_parallel;
}

// When the oldest of the additional pods was created.
std::optional<Time> growing_since(const View& view) {
  const int first = view.needed_replicas * workers_per_replica(view);
  std::optional<Time> since;
  for (const auto& pod : view.snapshot.pods) {
    if (pod->meta.owner_uid != view.job().meta.uid) continue;
    const int index = std::atoi(label_of(*pod, api::kWorkerIndex).c_str());
    if (index < first || is_spare(index) || pod->meta.deleting) continue;
    since = since ? std::min(*since, pod->meta.created) : pod->meta.created;
  }
  return since;
}

bool resize_refused(const View& view) {
  return view.refused && view.newest != nullptr &&
         view.newest->trigger == schedule::Trigger::kResize &&
         view.newest->replica_count() == view.wanted_replicas &&
         runs_on(working_pods(view), *view.newest);
}

// Whether all workers of which `which` is true have registered.
template <class Which>
bool all_registered(const View& view, const Which& which) {
  if (!view.snapshot.members) return false;
  std::set<std::string> registered;
  for (const auto& member : view.snapshot.members->body.members) registered.insert(member.pod_uid);
  return std::ranges::all_of(view.slots, [&](const Slot& slot) {
    return !which(slot) || (slot.pod && !worker_ended(*slot.pod) && !slot.pod->meta.deleting &&
                            registered.contains(slot.pod->meta.uid));
  });
}

std::string covered_text(const View& view) {
  const auto& report = view.snapshot.report->body;
  const int replicas = view.plan != nullptr ? view.plan->replica_count() : view.needed_replicas;
  const auto lost = static_cast<int>(report.lost_replicas.size());
  const std::string train =
      std::to_string(replicas - lost) + " of " + std::to_string(replicas) + " replicas train";
  if (const auto dead = dead_link_text(view)) return train + ": " + *dead;
  return train + " until the place of a lost worker is filled";
}

std::string replicas_text(const View& view) {
  return std::to_string(view.needed_replicas) + " of " + std::to_string(view.wanted_replicas) +
         " replicas train";
}

}  // namespace

void find_sizes(View& view, Draft& draft, bool accepted) {
  view.wanted_replicas =
      std::max(1, accepted ? view.spec().data_parallel : accepted_replicas(view, draft));
  const auto working = working_pods(view);
  view.plan_lives = view.plan != nullptr && runs_on(working, *view.plan);
  view.needed_replicas = view.plan_lives ? view.plan->replica_count() : view.wanted_replicas;
  view.planned_replicas = view.needed_replicas;
  if (accepted) draft.status.data_parallel = view.needed_replicas;
  if (!view.plan_lives || view.applied == nullptr || !runs_on(working, *view.applied)) return;
  // While a smaller plan is being applied, the larger one still runs.
  view.needed_replicas = std::max(view.needed_replicas, view.applied->replica_count());
  if (accepted) draft.status.data_parallel = view.applied->replica_count();
}

// A pod group of Kueue never changes its size.
std::optional<api::Refusal> refuse_resize(const View& view, const Draft& draft) {
  const bool running =
      std::ranges::any_of(view.snapshot.pods, [](const auto& pod) { return !pod_ended(*pod); });
  if (view.provider != gang::Provider::kKueue || !running || view.spec().suspend)
    return std::nullopt;
  const char* field = "parallelism.dataParallel: ";
  int now = accepted_replicas(view, draft), wanted = view.spec().data_parallel;
  if (now == wanted) {
    field = "workerGroups[].spares: ";
    now = accepted_spares(draft);
    wanted = wanted_spares(view);
  }
  if (now == wanted) return std::nullopt;
  return api::Refusal{"InvalidSpec",
                      field + std::to_string(wanted) + " instead of " + std::to_string(now) +
                          ": a pod group of Kueue keeps its size; set suspend to true, wait until "
                          "the pods are gone, and set it to false again"};
}

bool needed(const View& view, const Slot& slot) {
  if (slot.replica >= view.needed_replicas) return false;
  if (!view.plan_lives || view.plan != view.applied) return true;
  return slot.pod && std::ranges::any_of(view.plan->ranks, [&](const auto& rank) {
           return rank.pod_uid == slot.pod->meta.uid;
         });
}

int needed_workers(const View& view) {
  return static_cast<int>(
      std::ranges::count_if(view.slots, [&](const Slot& slot) { return needed(view, slot); }));
}

bool members_complete(const View& view, int replicas) {
  return all_registered(view, [&](const Slot& slot) { return slot.replica < replicas; });
}

bool members_complete(const View& view) {
  return all_registered(view, [&](const Slot& slot) { return needed(view, slot); });
}

bool resize_due(const View& view) {
  if (!view.plan_lives || view.plan->replica_count() == view.wanted_replicas) return false;
  if (!members_complete(view, view.wanted_replicas)) return false;
  // If the workers refused the plan, the old size stays until the members or the size change.
  return !resize_refused(view) || move_refused(view);
}

bool move_refused(const View& view) {
  return resize_refused(view) && view.newest->state == schedule::StateMove::kMove;
}

std::optional<std::string> reduced(const View& view, Draft& draft) {
  if (trains_reduced(view, draft)) return covered_text(view);
  if (!view.plan_lives || view.needed_replicas >= view.wanted_replicas) return std::nullopt;
  if (view.refused && view.newest != nullptr &&
      view.newest->trigger == schedule::Trigger::kResize) {
    return replicas_text(view) + ": the workers refused the larger plan: " +
           view.snapshot.report->body.last_switch->reason;
  }
  if (draft.refusal && draft.refusal->reason == "NoFeasiblePlan")
    return replicas_text(view) + ": " + draft.refusal->message;
  const int timeout = view.spec().scheduling_timeout_seconds;
  const auto since = growing_since(view);
  if (timeout == 0 || !since || members_complete(view, view.wanted_replicas)) return std::nullopt;
  const Time limit = *since + std::chrono::seconds(timeout);
  if (view.now() < limit) {
    draft.wake_at(limit);
    return std::nullopt;
  }
  int missing = 0;
  for (const auto& slot : view.slots)
    missing += !slot.spare && slot.pod && slot.pod->node.empty() ? 1 : 0;
  const int registered = registered_workers(view);
  return replicas_text(view) + ": " + std::to_string(registered) + " of " +
         std::to_string(workers_of(view)) + " workers have registered after " +
         std::to_string(timeout) + " s, " + std::to_string(missing) + " pods have no node";
}

// A pod of a replica that does not train yet may fail without a restart of the job. It is made
// again after a delay that doubles with each attempt.
std::optional<Time> grows_again_at(const Slot& slot) {
  constexpr std::chrono::seconds kFirst{10}, kMost{600};  // as after failures of the job
  constexpr int kMostDoublings = 6;                       // enough to reach the cap
  if (!slot.pod || !worker_ended(*slot.pod)) return std::nullopt;
  const int doublings = std::min(std::max(0, slot.next_attempt - 1), kMostDoublings);
  return ended_at(*slot.pod) + std::min<std::chrono::seconds>(kFirst * (1 << doublings), kMost);
}

void report_resized(const View& view, Draft& draft) {
  if (view.newest == nullptr || view.newest->trigger != schedule::Trigger::kResize) return;
  const auto& last = *view.snapshot.report->body.last_switch;
  const int before = draft.status.data_parallel, now = view.newest->replica_count();
  draft.event("Normal", "Resized",
              "replicas " + std::to_string(before) + " -> " + std::to_string(now) + " from step " +
                  std::to_string(last.step) + " on, revision " +
                  std::to_string(view.newest->revision) + ", pause " +
                  number(last.pause_seconds, 2) + " s",
              "Resize");
}

bool registered(const View& view, const Slot& slot) {
  if (!slot.pod || worker_ended(*slot.pod) || !view.snapshot.members) return false;
  const auto& members = view.snapshot.members->body.members;
  return std::ranges::find(members, slot.pod->meta.uid, &protocol::Member::pod_uid) !=
         members.end();
}

int workers_of(const View& view) {
  return static_cast<int>(
      std::ranges::count_if(view.slots, [](const Slot& slot) { return !slot.spare; }));
}

// A worker that is done counts, because it was registered until its last step.
int registered_workers(const View& view, int replicas) {
  int count = 0;
  for (const auto& slot : view.slots) {
    if (slot.replica >= replicas || !slot.pod || worker_failed(*slot.pod)) continue;
    count += worker_done(*slot.pod) || registered(view, slot) ? 1 : 0;
  }
  return count;
}

}  // namespace weir::reconcile
