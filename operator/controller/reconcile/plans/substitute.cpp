// SPDX-License-Identifier: Apache-2.0
// Idle workers in the places of lost ones: training goes on before new pods have come.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "operator/controller/reconcile/lifecycle/lifecycle.h"
#include "operator/controller/reconcile/plans/plans.h"
#include "operator/facts/node_bandwidth.h"

namespace weir::reconcile {
namespace {

enum class Place : unsigned char { kGood, kSlow, kClosing };  // the best ones first

struct Free {  // a worker without a stage
  std::string group;
  bool spare = false;
  Place place = Place::kGood;
  const protocol::Member* member = nullptr;
};

// A node that is cordoned is about to be drained.
Place place_of(const View& view, const std::string& node, bool slow) {
  const api::Node* known = node_of(view, node);
  if (known != nullptr && !known->schedulable) return Place::kClosing;
  return slow ? Place::kSlow : Place::kGood;
}

std::string group_of(const View& view, const std::string& pod) {
  for (const Slot& slot : view.slots) {
    if (is_of_slot(view, slot, pod)) return slot.group;
  }
  return "";
}

}  // namespace

std::optional<schedule::Plan> with_substitutes(const View& view, const Draft& draft) {
  if (view.plan == nullptr || view.plan_lives || !view.snapshot.members ||
      view.spec().restart_scope != api::RestartScope::kWorker) {
    return std::nullopt;
  }
  std::set<std::string> work;  // uids
  const auto slow = facts::slow_nodes(draft.adaptation.memory.history.links);
  std::vector<Free> free;
  bool coordinator = false;
  for (const Slot& slot : view.slots) {
    if (!slot.pod || worker_ended(*slot.pod) || slot.pod->meta.deleting) continue;
    const auto& members = view.snapshot.members->body.members;
    const auto member = std::ranges::find(members, slot.pod->meta.uid, &protocol::Member::pod_uid);
    if (member == members.end()) continue;
    work.insert(member->pod_uid);
    coordinator = coordinator || coordinates(draft.status, slot);
    if (!waits_for_stage(view, draft, slot)) continue;
    // A worker on a slow node may be idle for that reason; a spare is there for any other.
    const bool on_slow = slow.contains(member->node);
    if (on_slow && !slot.spare) continue;
    free.push_back({slot.group, slot.spare, place_of(view, member->node, on_slow), &*member});
  }
  std::ranges::stable_sort(free, {}, &Free::place);
  if (!coordinator) return std::nullopt;  // nobody would take up the plan
  schedule::Plan plan = *view.plan;
  for (schedule::RankPlace& rank : plan.ranks) {
    if (work.contains(rank.pod_uid)) continue;
    const auto found = std::ranges::find(free, group_of(view, rank.pod), &Free::group);
    if (found == free.end()) return std::nullopt;
    const protocol::Member& member = *found->member;
    rank.pod = member.pod;
    rank.pod_uid = member.pod_uid;
    rank.ip = member.ips.empty() ? "" : member.ips.front();
    rank.node = member.node;
    rank.data_port = member.data_port;
    free.erase(found);
  }
  plan.idle.clear();
  for (const Free& one : free) {
    if (!one.spare) plan.idle.push_back(one.member->pod);
  }
  plan.holders.clear();
  return plan;
}

}  // namespace weir::reconcile
