// SPDX-License-Identifier: Apache-2.0
// Spares: workers that join, but have no stage until one of their group is lost. A spare that has
// taken a place is a worker like the others, and the pod that is made for the lost one is the spare
// then. Only the plan says who is what, so nothing of it is remembered.
#include <set>

#include "operator/api/names.h"
#include "operator/controller/reconcile/lifecycle/lifecycle.h"
#include "worker/base/worker_index.h"

namespace weir::reconcile {
namespace {

using Names = std::set<std::string, std::less<>>;

// Whether a pod of the slot, of any attempt, is among them.
bool has_one_of(const View& view, const Slot& slot, const Names& pods) {
  const std::string stem = first_pod_name(view, slot);
  if (pods.contains(stem)) return true;
  const std::string again = stem + "-";
  for (auto pod = pods.lower_bound(again); pod != pods.end() && pod->starts_with(again); ++pod) {
    if (is_of_slot(view, slot, *pod)) return true;
  }
  return false;
}

// Whether some pod of the plan is there. After a resume, say, none is, and no spare has to go on.
bool has_pods(const View& view, const schedule::Plan& plan) {
  return std::ranges::any_of(view.snapshot.pods, [&](const auto& pod) {
    return !pod_ended(*pod) && std::ranges::find(plan.ranks, pod->meta.uid,
                                                 &schedule::RankPlace::pod_uid) != plan.ranks.end();
  });
}

Names pods_with_stages(const View& view) {
  Names pods;
  for (const schedule::Plan* plan : {view.plan, view.applied}) {
    if (plan == nullptr || !has_pods(view, *plan)) continue;
    for (const auto& rank : plan->ranks) pods.insert(rank.pod);
  }
  return pods;
}

// The spare is a worker of the replica whose place it has, and the one that it replaces the spare.
void change_roles(View& view, Slot& spare, const Names& pods) {
  for (Slot& slot : view.slots) {
    if (slot.group != spare.group || slot.spare || coordinates(view.job().status, slot) ||
        slot.replica >= view.needed_replicas || has_one_of(view, slot, pods)) {
      continue;
    }
    std::swap(slot.replica, spare.replica);
    std::swap(slot.spare, spare.spare);
    return;
  }
}

}  // namespace

std::vector<Slot> spare_slots(const View& view) {
  const Names pods = pods_with_stages(view);
  std::vector<Slot> spares;
  int first = kFirstSpare;
  for (const auto& group : view.spec().worker_groups) {
    for (int i = 0; i < api::kMostSpares; ++i) {
      Slot slot{.group = group.name,
                .index_in_group = kFirstSpare + i,
                .worker_index = first + i,
                .replica = kNoReplica,
                .spare = true};
      // One that has a stage stays until another plan.
      if (i < group.spares || has_one_of(view, slot, pods)) spares.push_back(std::move(slot));
    }
    first += api::kMostSpares;
  }
  return spares;
}

void assign_roles(View& view) {
  if (view.plan == nullptr) return;
  Names pods;
  for (const auto& rank : view.plan->ranks) pods.insert(rank.pod);
  for (Slot& slot : view.slots) {
    if (slot.spare && is_spare(slot.worker_index) && has_one_of(view, slot, pods))
      change_roles(view, slot, pods);
  }
}

int wanted_spares(const View& view) {
  int wanted = 0;
  for (const auto& group : view.spec().worker_groups) wanted += group.spares;
  return wanted;
}

int accepted_spares(const Draft& draft) {
  const std::string& shown = draft.status.recovery.spares;
  const auto slash = shown.find('/');
  return slash == std::string::npos ? 0 : std::atoi(shown.c_str() + slash + 1);
}

int registered_spares(const View& view) {
  int count = 0;
  for (const Slot& slot : view.slots) count += slot.spare && registered(view, slot) ? 1 : 0;
  return std::min(count, wanted_spares(view));
}

}  // namespace weir::reconcile
