// SPDX-License-Identifier: Apache-2.0
// The number of replicas and its changes. If it grows, training continues until the new pods have
// registered. If it shrinks, the plan changes first, then the pods with the highest indices are
// deleted. This part has no memory: plans, pods and the accepted size in status are enough.
#include <map>
#include <set>

#include "operator/api/names.h"
#include "operator/controller/reconcile/pass.h"

namespace weir::reconcile {
namespace {

using schedule::Plan;

int workers_per_replica(const Pass& pass) {
  int workers = 0;
  for (const auto& group : pass.spec().worker_groups) workers += group.count;
  return std::max(1, workers);
}

// Uids of pods that work or may start to: they have not failed, are not being deleted, and no later
// attempt has replaced them.
std::set<std::string> working_pods(const Pass& pass) {
  std::map<std::string, std::pair<int, const api::Pod*>> newest;
  for (const auto& pod : pass.snapshot.pods) {
    if (pod->meta.owner_uid != pass.job().meta.uid) continue;
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
int accepted_replicas(const Pass& pass) {
  for (const auto& group : pass.spec().worker_groups) {
    for (const auto& group_status : pass.status.worker_groups) {
      if (group_status.name == group.name && group_status.desired > 0 &&
          group_status.desired % group.count == 0)
        return group_status.desired / group.count;
    }
  }
  return pass.status.data_parallel;
}

// When the oldest of the additional pods was created.
std::optional<Time> growing_since(const Pass& pass) {
  const int first = pass.needed_replicas * workers_per_replica(pass);
  std::optional<Time> since;
  for (const auto& pod : pass.snapshot.pods) {
    if (pod->meta.owner_uid != pass.job().meta.uid) continue;
    const int index = std::atoi(label_of(*pod, api::kWorkerIndex).c_str());
    if (index < first || pod->meta.deleting) continue;
    since = since ? std::min(*since, pod->meta.created) : pod->meta.created;
  }
  return since;
}

bool resize_refused(const Pass& pass) {
  return pass.refused && pass.newest != nullptr &&
         pass.newest->trigger == schedule::Trigger::kResize &&
         pass.newest->replica_count() == pass.wanted_replicas &&
         runs_on(working_pods(pass), *pass.newest);
}

std::string replicas_text(const Pass& pass) {
  return std::to_string(pass.needed_replicas) + " of " + std::to_string(pass.wanted_replicas) +
         " replicas train";
}

}  // namespace

void find_sizes(Pass& pass, bool accepted) {
  pass.wanted_replicas =
      std::max(1, accepted ? pass.spec().data_parallel : accepted_replicas(pass));
  const auto working = working_pods(pass);
  pass.plan_lives = pass.plan != nullptr && runs_on(working, *pass.plan);
  pass.needed_replicas = pass.plan_lives ? pass.plan->replica_count() : pass.wanted_replicas;
  pass.planned_replicas = pass.needed_replicas;
  if (accepted) pass.status.data_parallel = pass.needed_replicas;
  if (!pass.plan_lives || pass.applied == nullptr || !runs_on(working, *pass.applied)) return;
  // While a smaller plan is being applied, the larger one still runs.
  pass.needed_replicas = std::max(pass.needed_replicas, pass.applied->replica_count());
  if (accepted) pass.status.data_parallel = pass.applied->replica_count();
}

// A pod group of Kueue never changes its size.
std::optional<api::Refusal> refuse_resize(const Pass& pass) {
  const int now = accepted_replicas(pass), wanted = pass.spec().data_parallel;
  const bool running =
      std::ranges::any_of(pass.snapshot.pods, [](const auto& pod) { return !pod_ended(*pod); });
  if (pass.provider != gang::Provider::kKueue || !running || pass.spec().suspend || now == wanted)
    return std::nullopt;
  return api::Refusal{"InvalidSpec",
                      "parallelism.dataParallel: " + std::to_string(wanted) + " instead of " +
                          std::to_string(now) +
                          ": a pod group of Kueue keeps its size; set suspend to true, wait until "
                          "the pods are gone, and set it to false again"};
}

bool needed(const Pass& pass, const Slot& slot) {
  return slot.replica < pass.needed_replicas;
}

int needed_workers(const Pass& pass) {
  return static_cast<int>(
      std::ranges::count_if(pass.slots, [&](const Slot& slot) { return needed(pass, slot); }));
}

bool members_complete(const Pass& pass, int replicas) {
  if (!pass.snapshot.members) return false;
  std::set<std::string> registered;
  for (const auto& member : pass.snapshot.members->body.members) registered.insert(member.pod_uid);
  return std::ranges::all_of(pass.slots, [&](const Slot& slot) {
    return slot.replica >= replicas ||
           (slot.pod && !worker_ended(*slot.pod) && !slot.pod->meta.deleting &&
            registered.contains(slot.pod->meta.uid));
  });
}

bool members_complete(const Pass& pass) {
  return members_complete(pass, pass.needed_replicas);
}

bool resize_due(Pass& pass) {
  if (!pass.plan_lives || pass.plan->replica_count() == pass.wanted_replicas) return false;
  if (!members_complete(pass, pass.wanted_replicas)) return false;
  // If the workers refused the plan, the old size stays until the members or the size change.
  return !resize_refused(pass) || move_refused(pass);
}

bool move_refused(const Pass& pass) {
  return resize_refused(pass) && pass.newest->state == schedule::StateMove::kMove;
}

std::optional<std::string> reduced(Pass& pass) {
  if (!pass.plan_lives || pass.needed_replicas >= pass.wanted_replicas) return std::nullopt;
  if (pass.refused && pass.newest != nullptr &&
      pass.newest->trigger == schedule::Trigger::kResize) {
    return replicas_text(pass) + ": the workers refused the larger plan: " +
           pass.snapshot.report->body.last_switch->reason;
  }
  if (pass.refusal && pass.refusal->reason == "NoFeasiblePlan")
    return replicas_text(pass) + ": " + pass.refusal->message;
  const int timeout = pass.spec().scheduling_timeout_seconds;
  const auto since = growing_since(pass);
  if (timeout == 0 || !since || members_complete(pass, pass.wanted_replicas)) return std::nullopt;
  const Time limit = *since + std::chrono::seconds(timeout);
  if (pass.now() < limit) {
    pass.wake_at(limit);
    return std::nullopt;
  }
  int missing = 0;
  for (const auto& slot : pass.slots) missing += slot.pod && slot.pod->node.empty() ? 1 : 0;
  const int registered = registered_workers(pass);
  return replicas_text(pass) + ": " + std::to_string(registered) + " of " +
         std::to_string(pass.slots.size()) + " workers have registered after " +
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

void report_resized(Pass& pass) {
  if (pass.newest == nullptr || pass.newest->trigger != schedule::Trigger::kResize) return;
  const auto& last = *pass.snapshot.report->body.last_switch;
  const int before = pass.status.data_parallel, now = pass.newest->replica_count();
  pass.event("Normal", "Resized",
             "replicas " + std::to_string(before) + " -> " + std::to_string(now) + " from step " +
                 std::to_string(last.step) + " on, revision " +
                 std::to_string(pass.newest->revision) + ", pause " +
                 number(last.pause_seconds, 2) + " s",
             "Resize");
}

}  // namespace weir::reconcile
