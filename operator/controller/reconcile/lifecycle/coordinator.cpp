// SPDX-License-Identifier: Apache-2.0
// Which worker coordinates the others (worker/protocol/README.md "Terms"). Most of those with a
// rank must say that they do not hear the one of the present term, and then the operator must not
// hear it either: a network that is broken for one side alone moves nobody. Where no other worker
// has a rank, those that are idle hear it, too, and may take that of the coordinator.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "operator/controller/reconcile/lifecycle/lifecycle.h"

namespace weir::reconcile {
namespace {

using std::chrono::seconds;

constexpr seconds kClaimCounts{15};  // one that is repeated each 10 s comes up to 12.5 s later
constexpr seconds kUnheard{6};       // reports come every 5 s

// The coordinator of the present term.
struct Present {
  std::string pod, pod_uid;  // uid "": slot 0 has no pod
  std::int64_t term = protocol::kFirstTerm;
  const char* lost = nullptr;  // why it cannot go on; null: its pod may still run
};

Present present_one(const View& view, const Draft& draft) {
  Present now;
  if (const auto& named = draft.status.coordinator) {
    now = {.pod = named->pod, .pod_uid = named->pod_uid, .term = named->term};
  } else {
    const Slot& first = view.slots.front();
    now.pod = first.pod ? first.pod->meta.name : first_pod_name(view, first);
    now.pod_uid = first.pod ? first.pod->meta.uid : "";
  }
  // One that is being deleted coordinates until it ends, also if the next pod of its slot is there.
  const auto pod = std::ranges::find_if(
      view.snapshot.pods, [&](const auto& one) { return one->meta.uid == now.pod_uid; });
  if (pod == view.snapshot.pods.end()) {
    now.lost = "is gone";
  } else if (worker_ended(**pod)) {
    now.lost = "has ended";
  } else if (!still_there(view, **pod)) {
    now.lost = "is gone";
  }
  return now;
}

// Whether the worker runs, and goes on.
bool goes_on(const Draft& draft, const Slot& slot) {
  return slot.pod && slot.pod->started && !worker_ended(*slot.pod) &&
         !replaced_by_restart(draft, *slot.pod);
}

bool claims_loss(const View& view, const api::Pod& pod, std::int64_t term) {
  return std::ranges::any_of(view.snapshot.claims, [&](const ClaimView& claim) {
    return claim.pod_uid == pod.meta.uid && claim.term == term &&
           view.now() - claim.received <= kClaimCounts;
  });
}

// The workers that run, without the coordinator, and those of them that claim its loss. Slots are
// in the order of indices, so the first is the next coordinator.
struct Votes {
  int voters = 0;
  std::vector<const Slot*> claimants;
  bool enough() const { return 2 * std::ssize(claimants) > voters; }
};

template <class May>
Votes votes_of(const View& view, const Draft& draft, const Present& now, May may) {
  Votes votes;
  for (const Slot& slot : view.slots) {
    if (!goes_on(draft, slot) || slot.pod->meta.uid == now.pod_uid || !may(slot)) continue;
    ++votes.voters;
    if (!slot.pod->meta.deleting && claims_loss(view, *slot.pod, now.term))
      votes.claimants.push_back(&slot);
  }
  return votes;
}

// When the operator has heard the coordinator last, at the latest: one that has just been named,
// and any one for a new leader, gets the time of a first report.
Time last_heard(const View& view, const Draft& draft) {
  Time heard = view.snapshot.leading_since;
  if (view.snapshot.report) heard = std::max(heard, view.snapshot.report->received);
  if (view.snapshot.members) heard = std::max(heard, view.snapshot.members->received);
  if (const auto& named = draft.status.coordinator; named && named->time)
    heard = std::max(heard, *named->time);
  return heard;
}

void move_to(const View& view, Draft& draft, const Present& former, const Slot& slot) {
  const api::Pod& pod = *slot.pod;
  draft.status.coordinator =
      api::CoordinatorStatus{.pod = pod.meta.name,
                             .pod_uid = pod.meta.uid,
                             .lost_pod_uid = former.pod_uid,
                             .term = former.term + 1,
                             .time = std::chrono::floor<seconds>(view.now())};  // as it is stored
  draft.guarded = true;  // two leaders must not name one for the same term
  draft.event("Warning", "CoordinatorMoved",
              "term " + std::to_string(former.term + 1) + ": pod " + pod.meta.name +
                  " coordinates, since " + former.pod + " " +
                  (former.lost != nullptr ? former.lost : "is no longer heard"),
              "Coordinate");
}

}  // namespace

bool coordinates(const api::JobStatus& status, const Slot& slot) {
  if (!status.coordinator) return slot.worker_index == 0;
  return slot.pod && slot.pod->meta.uid == status.coordinator->pod_uid;
}

const Slot* coordinator_slot(const View& view, const Draft& draft) {
  const auto found = std::ranges::find_if(
      view.slots, [&](const Slot& slot) { return coordinates(draft.status, slot); });
  return found == view.slots.end() ? nullptr : &*found;
}

bool met_since_move(const View& view, const api::CoordinatorStatus& coordinator,
                    const api::Pod& pod) {
  const auto& [report, members] = std::tie(view.snapshot.report, view.snapshot.members);
  const Time moved = coordinator.time.value_or(Time{});
  const auto is_it = [&](const auto& member) { return member.pod_uid == pod.meta.uid; };
  return (report && report->received > moved && std::ranges::any_of(report->body.members, is_it)) ||
         (members && members->received > moved &&
          std::ranges::any_of(members->body.members, is_it));
}

void name_coordinator(const View& view, Draft& draft) {
  const Present now = present_one(view, draft);
  Votes votes =
      votes_of(view, draft, now, [&](const Slot& slot) { return in_plan(view, *slot.pod); });
  if (votes.voters == 0) {
    const Slot& first = view.slots.front();
    const bool comes = first.pod && !worker_ended(*first.pod) && !first.pod->meta.deleting &&
                       !replaced_by_restart(draft, *first.pod);
    // Until one is named, workers that join wait.
    if (now.lost != nullptr && draft.status.coordinator && comes)
      return move_to(view, draft, now, first);
    // One that is no member has never heard the coordinator.
    votes = votes_of(view, draft, now, [&](const Slot& slot) {
      return view.plan != nullptr && registered(view, slot);
    });
  }
  if (!votes.enough()) return;
  if (now.lost == nullptr) {
    const Time limit = last_heard(view, draft) + kUnheard;
    if (view.now() < limit) return draft.wake_at(limit);
  }
  move_to(view, draft, now, *votes.claimants.front());
}

}  // namespace weir::reconcile
