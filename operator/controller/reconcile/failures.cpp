// SPDX-License-Identifier: Apache-2.0
// Finds failed workers and the times of their failures. restarts.cpp reacts to them.
#include <tuple>

#include "operator/controller/reconcile/pass.h"
#include "operator/controller/reconcile/reconcile.h"

namespace weir::reconcile {
namespace {

// A replacement of this pod is recorded, but the pod has not been made again yet.
bool leaves_its_node(const Pass& pass, const api::Pod& pod) {
  if (pod.node.empty() || generation_of(pod) >= pass.status.pod_generation) return false;
  return std::ranges::any_of(pass.status.avoided_nodes, [&](const auto& avoided) {
    return avoided.node == pod.node && avoided.reason == name(Cause::kReplaced);
  });
}

constexpr std::chrono::seconds kEpisode{30};  // failures within this time have one cause
constexpr std::chrono::seconds kEarlySuccess{
    60};  // a worker may end so long before its coordinator

const api::PodCondition* condition_of(const api::Pod& pod, const std::string& type,
                                      const std::string& status) {
  for (const auto& condition : pod.conditions) {
    if (condition.type == type && condition.status == status) return &condition;
  }
  return nullptr;
}

bool in_plan(const Pass& pass, const api::Pod& pod) {
  if (pass.plan == nullptr) return false;
  return std::ranges::any_of(pass.plan->ranks,
                             [&](const auto& rank) { return rank.pod_uid == pod.meta.uid; });
}

// The coordinator's last report about this worker; null = none.
const protocol::MemberReport* reported_member(const Pass& pass, const api::Pod& pod) {
  const auto& report = pass.snapshot.report;
  if (!report) return nullptr;
  const auto& members = report->body.members;
  const auto member =
      std::ranges::find_if(members, [&](const auto& m) { return m.pod_uid == pod.meta.uid; });
  return member == members.end() ? nullptr : &*member;
}

// Until when the coordinator's report counts that it hears this worker; nothing = it reported
// otherwise or nothing. counts: how long a report counts.
std::optional<Time> heard_until(const Pass& pass, const api::Pod& pod,
                                std::chrono::seconds counts) {
  const auto* member = reported_member(pass, pod);
  if (member == nullptr || !member->ready) return std::nullopt;
  return pass.snapshot.report->received + counts;
}

// A worker counts as silent if the kubelet says that its pod is not ready, and the coordinator does
// not hear it, or is silent itself.
std::optional<Failure> silent_worker(Pass& pass, const api::Pod& pod) {
  const auto* not_ready = condition_of(pod, "Ready", "False");
  if (!pod.started || not_ready == nullptr || !not_ready->since || !in_plan(pass, pod))
    return std::nullopt;
  // If the node is not ready, only the control plane says that the pod is not ready.
  const api::Node* node = node_of(pass, pod.node);
  if (node != nullptr && !node->ready) return std::nullopt;
  Time since = *not_ready->since;
  if (node != nullptr) since = std::max(since, node->ready_since.value_or(since));
  Time limit =
      std::max(since + pass.tunables.member_lost, pass.snapshot.leading_since + kNewLeaderWaits);
  if (const auto heard = heard_until(pass, pod, pass.tunables.member_lost))
    limit = std::max(limit, *heard);
  if (pass.now() < limit) {
    pass.wake_at(limit);
    return std::nullopt;
  }
  Failure failure;
  failure.cause = Cause::kWorkerSilent;
  failure.unheard_until = limit;
  failure.time = not_ready->since;
  failure.text =
      "not ready and silent for " + std::to_string(pass.tunables.member_lost.count()) + " s";
  return failure;
}

// If most nodes are not ready, the network to the API server is broken, not the machines.
bool most_nodes_not_ready(const Pass& pass) {
  const auto& nodes = *pass.snapshot.nodes;
  const auto lost =
      std::ranges::count_if(nodes, [](const auto& entry) { return !entry.second->ready; });
  return 2 * static_cast<std::size_t>(lost) > nodes.size();
}

// The pod's node is not ready for too long, and no report says that the worker lives.
std::optional<Failure> on_lost_node(Pass& pass, const api::Pod& pod) {
  constexpr std::chrono::seconds kLookAgain{10};  // a change of a node wakes no job
  const api::Node* node = pod.node.empty() ? nullptr : node_of(pass, pod.node);
  if (node == nullptr || node->ready || !node->not_ready_since) return std::nullopt;
  Time lost = *node->not_ready_since + pass.tunables.node_lost;
  if (const auto heard = heard_until(pass, pod, pass.tunables.member_silent))
    lost = std::max(lost, *heard);
  if (pass.now() < lost) {
    pass.wake_at(lost);
    return std::nullopt;
  }
  if (most_nodes_not_ready(pass)) {
    pass.wake_at(pass.now() + kLookAgain);
    return std::nullopt;
  }
  Failure failure;
  failure.cause = Cause::kNodeLost;
  failure.unheard_until = lost;
  failure.time = node->not_ready_since;
  failure.text = "node " + pod.node + " is not ready";
  return failure;
}

std::optional<Failure> running_pod(Pass& pass, const api::Pod& pod) {
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
  if (auto lost = on_lost_node(pass, pod)) return lost;
  if (leaves_its_node(pass, pod)) {
    failure.cause = Cause::kReplaced;
    failure.time = pass.status.last_restart_time;
    failure.text = "moves away from node " + pod.node + ", whose links are slow";
    return failure;
  }
  return silent_worker(pass, pod);
}

// Whether the plan has a pod of this slot. If that pod is missing, it was deleted. A pod that is
// missing before the first plan is no failure.
bool was_in_plan(const Pass& pass, const Slot& slot) {
  if (pass.plan == nullptr) return false;
  const std::string stem = api::pod_name(pass.job().meta.name, slot.group, slot.index_in_group, 0);
  const auto same = [&](const std::string& pod) {
    if (pod == stem) return true;
    return pod.starts_with(stem + "-") &&
           pod.find_first_not_of("0123456789", stem.size() + 1) == std::string::npos;
  };
  return std::ranges::any_of(pass.plan->ranks, [&](const auto& rank) { return same(rank.pod); }) ||
         std::ranges::any_of(pass.plan->idle, same);
}

std::optional<Failure> failure_of(Pass& pass, const Slot& slot) {
  if (!slot.pod) {
    if (!was_in_plan(pass, slot)) return std::nullopt;
    Failure gone;
    gone.cause = Cause::kPodDeleted;
    gone.text = "the pod of worker " + slot.group + "-" + std::to_string(slot.index_in_group) +
                " is missing";
    return gone;
  }
  const api::Pod& pod = *slot.pod;
  // The same holds for a pod that is being deleted: dataParallel may have been lowered and raised.
  if (pod.meta.deleting && !was_in_plan(pass, slot)) return std::nullopt;
  if (outdated(pass, pod)) return std::nullopt;  // it is made again, which is no restart
  std::optional<Failure> failure;
  if (worker_failed(pod)) {
    failure = failed_worker(pod);
  } else if (worker_done(pod)) {
    const Time limit = ended_at(pod) + kEarlySuccess;
    if (pass.now() <= limit) {
      pass.wake_at(limit + std::chrono::seconds(1));
    } else {
      failure = Failure{.cause = Cause::kEndedEarly,
                        .exit_code = pod.exit_code,
                        .time = ended_at(pod),
                        .text = "ended while the coordinator still runs",
                        .unheard_until = limit};
    }
  } else {
    failure = running_pod(pass, pod);
  }
  if (failure) failure->text = "pod " + pod.meta.name + ": " + failure->text;
  return failure;
}

// Whether the failure belongs to the episode of the last restart: its pod is older than that, and
// it failed before the episode was over.
bool recorded(const Pass& pass, const Failure& failure) {
  const auto& last = pass.status.last_restart_time;
  if (!last) return false;
  if (!failure.time) return pass.status.plan.time && *last >= *pass.status.plan.time;
  return generation_of(*failure.slot->pod) < pass.status.pod_generation &&
         *failure.time <= *last + kEpisode;
}

}  // namespace

std::vector<std::string> restart_reasons() {
  std::vector<std::string> names;
  for (const CauseRow& row : kCauses) names.emplace_back(row.name);
  return names;
}

bool heard_out(Pass& pass, const Failure& failure) {
  const auto& confirmed = pass.snapshot.pods_confirmed;
  if (!failure.unheard_until || (confirmed && *confirmed >= *failure.unheard_until)) return true;
  const bool asked = std::ranges::any_of(pass.out.requests, [](const Request& request) {
    return std::holds_alternative<ConfirmPods>(request);
  });
  if (!asked) pass.ask(ConfirmPods{});
  return false;
}

void find_failures(Pass& pass) {
  for (const auto& slot : pass.slots) {
    if (!needed(pass, slot)) continue;  // resize.cpp
    auto failure = failure_of(pass, slot);
    if (!failure) continue;
    if (!heard_out(pass, *failure)) continue;
    failure->slot = &slot;
    failure->recorded = recorded(pass, *failure);
    pass.failures.push_back(std::move(*failure));
  }
}

bool handle_failures(Pass& pass) {
  const Failure* first = nullptr;
  Time oldest = Time::max();
  Time episode_end = pass.now();
  for (const auto& failure : pass.failures) {
    if (failure.recorded) continue;
    const Time time = failure.time.value_or(pass.now());
    oldest = std::min(oldest, time);
    episode_end = std::max(episode_end, time);  // the kubelet's clock may be ahead
    const auto key = [&](const Failure& f) {
      return std::tuple(f.cause == Cause::kPeerLost, f.time.value_or(pass.now()),
                        row(f.cause).weight);
    };
    if (first == nullptr || key(failure) < key(*first)) first = &failure;
  }
  if (first == nullptr) return false;
  // Code 80 is a consequence of another worker's failure, which may show later.
  if (first->cause == Cause::kPeerLost && pass.now() < oldest + kEpisode) {
    pass.wake_at(oldest + kEpisode);
    return false;
  }
  record_failure(pass, *first, pass.spec().restart_scope.text(), episode_end);
  return true;
}

}  // namespace weir::reconcile
