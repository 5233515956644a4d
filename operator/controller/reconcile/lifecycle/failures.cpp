// SPDX-License-Identifier: Apache-2.0
// Finds failed workers and the times of their failures. restarts.cpp reacts to them.
#include <tuple>

#include "operator/controller/reconcile/lifecycle/lifecycle.h"

namespace weir::reconcile {
namespace {

constexpr std::chrono::seconds kEarlySuccess{
    60};  // a worker may end so long before its coordinator

const api::PodCondition* condition_of(const api::Pod& pod, const std::string& type,
                                      const std::string& status) {
  for (const auto& condition : pod.conditions) {
    if (condition.type == type && condition.status == status) return &condition;
  }
  return nullptr;
}

// The coordinator's last report about this worker; null = none.
const protocol::MemberReport* reported_member(const View& view, const api::Pod& pod) {
  const auto& report = view.snapshot.report;
  if (!report) return nullptr;
  const auto& members = report->body.members;
  const auto member =
      std::ranges::find_if(members, [&](const auto& m) { return m.pod_uid == pod.meta.uid; });
  return member == members.end() ? nullptr : &*member;
}

// Until when the coordinator's report counts that it hears this worker; nothing = it reported
// otherwise or nothing. counts: how long a report counts.
std::optional<Time> heard_until(const View& view, const api::Pod& pod,
                                std::chrono::seconds counts) {
  const auto* member = reported_member(view, pod);
  if (member == nullptr || !member->ready) return std::nullopt;
  return view.snapshot.report->received + counts;
}

// A worker counts as silent if the kubelet says that its pod is not ready, and the coordinator does
// not hear it, or is silent itself.
std::optional<Failure> silent_worker(const View& view, Draft& draft, const api::Pod& pod) {
  const auto* not_ready = condition_of(pod, "Ready", "False");
  if (!pod.started || not_ready == nullptr || !not_ready->since || !in_plan(view, pod))
    return std::nullopt;
  // If the node is not ready, only the control plane says that the pod is not ready.
  const api::Node* node = node_of(view, pod.node);
  if (node != nullptr && !node->ready) return std::nullopt;
  Time since = *not_ready->since;
  if (node != nullptr) since = std::max(since, node->ready_since.value_or(since));
  Time limit =
      std::max(since + view.tunables.member_lost, view.snapshot.leading_since + kNewLeaderWaits);
  if (const auto heard = heard_until(view, pod, view.tunables.member_lost))
    limit = std::max(limit, *heard);
  if (view.now() < limit) {
    draft.wake_at(limit);
    return std::nullopt;
  }
  Failure failure;
  failure.cause = Cause::kWorkerSilent;
  failure.unheard_until = limit;
  failure.time = not_ready->since;
  failure.text =
      "not ready and silent for " + std::to_string(view.tunables.member_lost.count()) + " s";
  return failure;
}

// Since when a former coordinator has been silent: nobody has heard it after another one was named.
// Nothing: it is none, or it has joined that one since.
std::optional<Time> silent_since_move(const View& view, const Draft& draft, const api::Pod& pod) {
  const auto& named = draft.status.coordinator;
  if (!named || named->lost_pod_uid != pod.meta.uid || met_since_move(view, *named, pod))
    return std::nullopt;
  return named->time;
}

}  // namespace

std::optional<Time> last_sign_of(const View& view, const Draft& draft, const api::Pod& pod) {
  if (const auto since = silent_since_move(view, draft, pod)) return since;
  const auto* member = reported_member(view, pod);
  if (silent(view, draft) || member == nullptr || !(member->silent_seconds > 0))
    return std::nullopt;
  const std::chrono::duration<double> unheard(std::min(member->silent_seconds, 1e9));
  return view.snapshot.report->received - std::chrono::duration_cast<std::chrono::seconds>(unheard);
}

namespace {

// If most nodes are not ready, the network to the API server is broken, not the machines.
bool most_nodes_not_ready(const View& view) {
  const auto& nodes = *view.snapshot.nodes;
  const auto lost =
      std::ranges::count_if(nodes, [](const auto& entry) { return !entry.second->ready; });
  return 2 * static_cast<std::size_t>(lost) > nodes.size();
}

// The pod's node is not ready for too long, and no report says that the worker lives.
std::optional<Failure> on_lost_node(const View& view, Draft& draft, const api::Pod& pod) {
  constexpr std::chrono::seconds kLookAgain{10};  // a change of a node wakes no job
  const api::Node* node = pod.node.empty() ? nullptr : node_of(view, pod.node);
  if (node == nullptr || node->ready || !node->not_ready_since) return std::nullopt;
  Time lost = *node->not_ready_since + view.tunables.node_lost;
  if (const auto heard = heard_until(view, pod, view.tunables.member_silent))
    lost = std::max(lost, *heard);
  // The control plane misses a kubelet after 40 s only, the coordinator a worker much sooner.
  if (const auto sign = last_sign_of(view, draft, pod))
    lost = std::max(*node->not_ready_since, *sign + view.tunables.node_lost);
  if (view.now() < lost) {
    draft.wake_at(lost);
    return std::nullopt;
  }
  if (most_nodes_not_ready(view)) {
    draft.wake_at(view.now() + kLookAgain);
    return std::nullopt;
  }
  Failure failure;
  failure.cause = Cause::kNodeLost;
  failure.unheard_until = lost;
  failure.time = node->not_ready_since;
  failure.text = "node " + pod.node + " is not ready";
  return failure;
}

std::optional<Failure> running_pod(const View& view, Draft& draft, const api::Pod& pod) {
  Failure failure;
  const auto* target = condition_of(pod, "DisruptionTarget", "True");
  if (pod.meta.deleting || target != nullptr) {
    failure.cause = target != nullptr ? Cause::kDisrupted : Cause::kPodDeleted;
    failure.time = failed_at(pod);
    failure.text = target == nullptr        ? "deleted"
                   : pod.meta.deleting      ? "deleted, disrupted"
                   : target->reason.empty() ? "disrupted: " + target->message
                                            : "disrupted: " + target->reason;
    return failure;
  }
  if (auto lost = on_lost_node(view, draft, pod)) return lost;
  if (leaves_its_node(draft, pod, Cause::kReplaced)) {
    failure.cause = Cause::kReplaced;
    failure.time = draft.status.last_restart_time;
    failure.text = "moves away from node " + pod.node + ", whose links are slow";
    return failure;
  }
  if (auto cut = cut_off(view, draft, pod)) return cut;
  return silent_worker(view, draft, pod);
}

// Whether the plan has a pod of this slot. If that pod is missing, it was deleted. A pod that is
// missing before the first plan is no failure.
bool was_in_plan(const View& view, const Slot& slot) {
  if (view.plan == nullptr) return false;
  const auto same = [&](const std::string& pod) { return is_of_slot(view, slot, pod); };
  return std::ranges::any_of(view.plan->ranks, [&](const auto& rank) { return same(rank.pod); }) ||
         std::ranges::any_of(view.plan->idle, same);
}

// Whether a worker without a stage waits that can take the place of this one, which may still live:
// its kubelet must see it, too.
bool has_substitute(const View& view, const Draft& draft, const Slot& lost) {
  if (coordinates(draft.status, lost) || view.spec().restart_scope != api::RestartScope::kWorker ||
      !in_plan(view, *lost.pod)) {
    return false;
  }
  return std::ranges::any_of(view.slots, [&](const Slot& slot) {
    return slot.group == lost.group && waits_for_stage(view, draft, slot) && slot.pod->ready;
  });
}

// The trainer has ended again in its pod, and its kubelet waits 10 s or longer before it starts it
// there. A worker without a stage need not wait.
bool goes_to_substitute(const View& view, const Draft& draft, const Slot& lost) {
  const bool waits = lost.pod->exit_code || lost.pod->waiting_reason == kBackOff;
  return waits && ends_in_place(*lost.pod) >= 2 && has_substitute(view, draft, lost);
}

// Its machine is gone, or its process hangs. Without a substitute it may come back as it is.
std::optional<Failure> silent_with_substitute(const View& view, const Draft& draft,
                                              const Slot& slot) {
  const auto sign = last_sign_of(view, draft, *slot.pod);
  if (!sign || !has_substitute(view, draft, slot)) return std::nullopt;
  Failure failure;
  failure.cause = Cause::kWorkerSilent;
  failure.time = sign;
  if (silent_since_move(view, draft, *slot.pod)) {
    failure.unheard_until = sign;
    failure.text = "it coordinated and is no longer heard, and another worker can take its place";
    return failure;
  }
  const Time told = view.snapshot.report->received;
  failure.unheard_until = told;
  failure.text =
      "the coordinator has heard nothing for " +
      std::to_string(std::chrono::duration_cast<std::chrono::seconds>(told - *sign).count()) +
      " s, and another worker can take its place";
  return failure;
}

std::optional<Failure> failure_of(const View& view, Draft& draft, const Slot& slot) {
  if (!slot.pod) {
    if (!was_in_plan(view, slot)) return std::nullopt;
    Failure gone;
    gone.cause = Cause::kPodDeleted;
    gone.text = "the pod of worker " + slot.group + "-" + std::to_string(slot.index_in_group) +
                " is missing";
    return gone;
  }
  const api::Pod& pod = *slot.pod;
  // The same holds for a pod that is being deleted: dataParallel may have been lowered and raised.
  if (pod.meta.deleting && !was_in_plan(view, slot)) return std::nullopt;
  if (outdated(draft, pod)) return std::nullopt;  // it is made again, which is no restart
  std::optional<Failure> failure;
  if (worker_failed(pod)) {
    failure = failed_worker(pod);
  } else if (worker_done(pod)) {
    const Time limit = ended_at(pod) + kEarlySuccess;
    if (view.now() <= limit) {
      draft.wake_at(limit + std::chrono::seconds(1));
    } else {
      failure = Failure{.cause = Cause::kEndedEarly,
                        .exit_code = pod.exit_code,
                        .time = ended_at(pod),
                        .text = "ended while the coordinator still runs",
                        .unheard_until = limit};
    }
  } else if (goes_to_substitute(view, draft, slot)) {
    failure = failed_worker(pod);
  } else {
    failure = running_pod(view, draft, pod);
    if (!failure) failure = silent_with_substitute(view, draft, slot);
  }
  if (failure) failure->text = "pod " + pod.meta.name + ": " + failure->text;
  return failure;
}

// Whether the failure belongs to the episode of the last restart: its pod is older than that, and
// it failed before the episode was over.
bool recorded(const Draft& draft, const Failure& failure) {
  const auto& last = draft.status.last_restart_time;
  if (!last) return false;
  if (!failure.time) return draft.status.plan.time && *last >= *draft.status.plan.time;
  return generation_of(*failure.slot->pod) < draft.status.pod_generation &&
         *failure.time <= *last + kEpisode;
}

}  // namespace

bool in_plan(const View& view, const api::Pod& pod) {
  if (view.plan == nullptr) return false;
  return std::ranges::any_of(view.plan->ranks,
                             [&](const auto& rank) { return rank.pod_uid == pod.meta.uid; });
}

bool waits_for_stage(const View& view, const Draft& draft, const Slot& slot) {
  if (!registered(view, slot) || slot.pod->meta.deleting || in_plan(view, *slot.pod) ||
      last_sign_of(view, draft, *slot.pod)) {
    return false;
  }
  const api::Node* node = node_of(view, slot.pod->node);
  return node == nullptr || node->ready;
}

bool leaves_its_node(const Draft& draft, const api::Pod& pod, Cause cause) {
  if (pod.node.empty() || generation_of(pod) >= draft.status.pod_generation) return false;
  return std::ranges::any_of(draft.status.avoided_nodes, [&](const auto& avoided) {
    return avoided.node == pod.node && avoided.reason == name(cause);
  });
}

bool heard_out(const View& view, Draft& draft, const Failure& failure) {
  const auto& confirmed = view.snapshot.pods_confirmed;
  if (!failure.unheard_until || (confirmed && *confirmed >= *failure.unheard_until)) return true;
  const bool asked = std::ranges::any_of(draft.out.requests, [](const Request& request) {
    return std::holds_alternative<ConfirmPods>(request);
  });
  if (!asked) draft.ask(ConfirmPods{});
  return false;
}

void find_failures(View& view, Draft& draft) {
  for (const auto& slot : view.slots) {
    if (!needed(view, slot)) continue;  // resize.cpp
    auto failure = failure_of(view, draft, slot);
    if (!failure) continue;
    if (!heard_out(view, draft, *failure)) continue;
    failure->slot = &slot;
    failure->recorded = recorded(draft, *failure);
    view.failures.push_back(std::move(*failure));
  }
}

bool handle_failures(const View& view, Draft& draft) {
  const Failure* first = nullptr;
  Time oldest = Time::max();
  Time episode_end = view.now();
  for (const auto& failure : view.failures) {
    if (failure.recorded) continue;
    const Time time = failure.time.value_or(view.now());
    oldest = std::min(oldest, time);
    episode_end = std::max(episode_end, time);  // the kubelet's clock may be ahead
    const auto key = [&](const Failure& f) {
      return std::tuple(f.cause == Cause::kPeerLost, f.time.value_or(view.now()),
                        row(f.cause).weight);
    };
    if (first == nullptr || key(failure) < key(*first)) first = &failure;
  }
  if (first == nullptr) return false;
  // Code 80 is a consequence of another worker's failure, which may show later.
  if (first->cause == Cause::kPeerLost && view.now() < oldest + kEpisode) {
    draft.wake_at(oldest + kEpisode);
    return false;
  }
  record_failure(view, draft, *first, view.spec().restart_scope.text(), episode_end);
  return true;
}

}  // namespace weir::reconcile
