// SPDX-License-Identifier: Apache-2.0
// Which workers have failed, and since when (operator.md 6). What is done about it: restarts.cpp.
#include <array>
#include <tuple>

#include "operator/controller/reconcile/pass.h"
#include "operator/controller/reconcile/reconcile.h"
#include "operator/controller/reconcile/tiers.h"

namespace weir::reconcile {
namespace {

// api.md 7, exit codes of weir-worker.
constexpr int kConfigurationExit = 2, kPeerLostExit = 80, kOutOfMemoryExit = 81,
              kDeviceFaultExit = 82, kIoErrorExit = 83, kTerminatedExit = 143;
constexpr std::chrono::seconds kEpisode{30};       // one cause, operator.md 6.1
constexpr std::chrono::seconds kEarlySuccess{60};  // a worker may end that much before its
                                                   // coordinator

const api::PodCondition* condition_of(const api::Pod& pod, const std::string& type,
                                      const std::string& status) {
  for (const auto& condition : pod.conditions) {
    if (condition.type == type && condition.status == status) return &condition;
  }
  return nullptr;
}

bool in_plan(const Pass& pass, const api::Pod& pod) {
  if (pass.plan == nullptr) return false;
  return std::any_of(pass.plan->ranks.begin(), pass.plan->ranks.end(),
                     [&](const auto& rank) { return rank.pod_uid == pod.meta.uid; });
}

Cause cause_of_exit(const api::Pod& pod) {
  if (pod.termination_reason == "OOMKilled") return Cause::kOutOfMemory;
  switch (pod.exit_code.value_or(0)) {
    case kConfigurationExit:
      return Cause::kConfiguration;
    case kPeerLostExit:
      return Cause::kPeerLost;
    case kOutOfMemoryExit:
      return Cause::kOutOfMemory;
    case kDeviceFaultExit:
      return Cause::kDeviceFault;
    case kIoErrorExit:
      return Cause::kIoError;
    case kTerminatedExit:
      return Cause::kTerminated;
    default:
      return Cause::kCrashed;
  }
}

Failure failed_pod(const Pass& pass, const api::Pod& pod) {
  Failure failure;
  failure.cause = cause_of_exit(pod);
  // Reasons are those of kubelets before Kubernetes 1.26, which do not set the condition.
  static constexpr std::array kDisruptions = {"Evicted", "Preempting", "NodeLost", "NodeShutdown",
                                              "Terminated"};
  const bool disrupted =
      condition_of(pod, "DisruptionTarget", "True") != nullptr ||
      std::find(kDisruptions.begin(), kDisruptions.end(), pod.reason) != kDisruptions.end();
  if (failure.cause != Cause::kConfiguration && disrupted) failure.cause = Cause::kDisrupted;
  if (failure.cause == Cause::kCrashed && pod.meta.deleting) failure.cause = Cause::kPodDeleted;
  failure.exit_code = pod.exit_code;
  failure.time = pod.ended.value_or(pass.now());
  failure.text = pod.exit_code        ? "exit code " + std::to_string(*pod.exit_code)
                 : pod.reason.empty() ? "failed"
                                      : pod.reason;
  if (!pod.termination_reason.empty() && pod.termination_reason != "Error")
    failure.text += " (" + pod.termination_reason + ")";
  if (disrupted) failure.text += ", disrupted";
  return failure;
}

// Two witnesses: the kubelet says not ready, and the coordinator does not hear it either, or is
// silent itself.
std::optional<Failure> silent_worker(Pass& pass, const api::Pod& pod) {
  const auto* not_ready = condition_of(pod, "Ready", "False");
  if (!pod.started || not_ready == nullptr || !not_ready->since || !in_plan(pass, pod))
    return std::nullopt;
  Time limit = std::max(*not_ready->since + pass.tunables.member_lost,
                        pass.snapshot.leading_since + kNewLeaderWaits);
  const auto& report = pass.snapshot.report;
  if (report) {
    const auto& members = report->body.members;
    const auto member = std::find_if(members.begin(), members.end(),
                                     [&](const auto& m) { return m.pod_uid == pod.meta.uid; });
    const bool heard = member != members.end() && member->ready;
    if (heard) limit = std::max(limit, report->received + pass.tunables.member_lost);
  }
  if (pass.now() < limit) {
    pass.wake_at(limit);
    return std::nullopt;
  }
  Failure failure;
  failure.cause = Cause::kWorkerSilent;
  failure.time = not_ready->since;
  failure.text =
      "not ready and silent for " + std::to_string(pass.tunables.member_lost.count()) + " s";
  return failure;
}

std::optional<Failure> running_pod(Pass& pass, const api::Pod& pod) {
  Failure failure;
  if (pod.meta.deleting) {
    failure.cause = condition_of(pod, "DisruptionTarget", "True") != nullptr ? Cause::kDisrupted
                                                                             : Cause::kPodDeleted;
    failure.time = *pod.meta.deleting - std::chrono::seconds(pod.meta.deletion_grace_seconds);
    failure.text = failure.cause == Cause::kDisrupted ? "deleted, disrupted" : "deleted";
    return failure;
  }
  if (const auto* target = condition_of(pod, "DisruptionTarget", "True"); target != nullptr) {
    failure.cause = Cause::kDisrupted;
    failure.time = target->since.value_or(pass.now());
    failure.text = "disrupted: " + (target->reason.empty() ? target->message : target->reason);
    return failure;
  }
  const api::Node* node = pod.node.empty() ? nullptr : node_of(pass, pod.node);
  if (node != nullptr && !node->ready && node->not_ready_since) {
    const Time lost = *node->not_ready_since + pass.tunables.node_lost;
    if (pass.now() >= lost) {
      failure.cause = Cause::kNodeLost;
      failure.time = node->not_ready_since;
      failure.text = "node " + pod.node + " is not ready";
      return failure;
    }
    pass.wake_at(lost);
  }
  if (leaves_its_node(pass, pod)) {
    failure.cause = Cause::kReplaced;
    failure.time = pass.status.last_restart_time;
    failure.text = "leaves node " + pod.node + ", whose links are slow";
    return failure;
  }
  return silent_worker(pass, pod);
}

// A pod that was there once, as the plan remembers, and is no more. Before the first plan it is
// just made again.
bool was_in_plan(const Pass& pass, const Slot& slot) {
  if (pass.plan == nullptr) return false;
  const std::string stem = api::pod_name(pass.job().meta.name, slot.group, slot.index_in_group, 0);
  const auto same = [&](const std::string& pod) {
    if (pod == stem) return true;
    return pod.starts_with(stem + "-") &&
           pod.find_first_not_of("0123456789", stem.size() + 1) == std::string::npos;
  };
  return std::any_of(pass.plan->ranks.begin(), pass.plan->ranks.end(),
                     [&](const auto& rank) { return same(rank.pod); }) ||
         std::any_of(pass.plan->idle.begin(), pass.plan->idle.end(), same);
}

std::optional<Failure> failure_of(Pass& pass, const Slot& slot) {
  if (!slot.pod) {
    if (!was_in_plan(pass, slot)) return std::nullopt;
    Failure gone;
    gone.cause = Cause::kPodDeleted;
    gone.text =
        "the pod of worker " + slot.group + "-" + std::to_string(slot.index_in_group) + " is gone";
    return gone;
  }
  const api::Pod& pod = *slot.pod;
  // Likewise one that goes: a smaller size may have sent it away, before a larger one came.
  if (pod.meta.deleting && !was_in_plan(pass, slot)) return std::nullopt;
  std::optional<Failure> failure;
  if (pod.phase == "Failed") {
    failure = failed_pod(pass, pod);
  } else if (pod.phase == "Succeeded") {
    const Time limit = pod.ended.value_or(pass.now()) + kEarlySuccess;
    if (pass.now() <= limit) {
      pass.wake_at(limit + std::chrono::seconds(1));
    } else {
      failure = Failure{nullptr, Cause::kEndedEarly, pod.exit_code, pod.ended,
                        "ended while the coordinator still runs"};
    }
  } else {
    failure = running_pod(pass, pod);
  }
  if (failure) failure->text = "pod " + pod.meta.name + ": " + failure->text;
  return failure;
}

// Belongs to the episode of the last restart: its pod is older than that, and it failed before the
// episode was over.
bool recorded(const Pass& pass, const Failure& failure) {
  const auto& last = pass.status.last_restart_time;
  if (!last) return false;
  if (!failure.time) return pass.status.plan.time && *last >= *pass.status.plan.time;
  return generation_of(*failure.slot->pod) < pass.status.pod_generation &&
         *failure.time <= *last + kEpisode;
}

// What matters most of the failures of one moment: their times have whole seconds.
int weight(Cause cause) {
  switch (cause) {
    case Cause::kConfiguration:
      return 0;
    case Cause::kOutOfMemory:
    case Cause::kDeviceFault:
    case Cause::kIoError:
      return 1;
    case Cause::kCrashed:
    case Cause::kEndedEarly:
    case Cause::kWorkerSilent:
    case Cause::kNoProgress:
    case Cause::kStartupTimedOut:
      return 2;
    case Cause::kTerminated:
    case Cause::kDisrupted:
    case Cause::kPodDeleted:
    case Cause::kNodeLost:
      return 3;
    case Cause::kReplaced:
    case Cause::kPeerLost:
      return 4;
  }
  return 4;
}

}  // namespace

const char* name(Cause cause) {
  switch (cause) {
    case Cause::kCrashed:
      return "Crashed";
    case Cause::kOutOfMemory:
      return "OutOfMemory";
    case Cause::kDeviceFault:
      return "DeviceFault";
    case Cause::kIoError:
      return "IoError";
    case Cause::kConfiguration:
      return "ConfigurationError";
    case Cause::kPeerLost:
      return "PeerLost";
    case Cause::kTerminated:
      return "Terminated";
    case Cause::kDisrupted:
      return "Disrupted";
    case Cause::kPodDeleted:
      return "PodDeleted";
    case Cause::kNodeLost:
      return "NodeLost";
    case Cause::kWorkerSilent:
      return "WorkerSilent";
    case Cause::kEndedEarly:
      return "EndedEarly";
    case Cause::kNoProgress:
      return "NoProgress";
    case Cause::kStartupTimedOut:
      return "StartupTimedOut";
    case Cause::kReplaced:
      return "Replaced";
  }
  return "";
}

std::vector<std::string> restart_reasons() {
  std::vector<std::string> names;
  for (int cause = 0; cause <= static_cast<int>(Cause::kReplaced); ++cause) {
    names.emplace_back(name(static_cast<Cause>(cause)));
  }
  return names;
}

bool handle_failures(Pass& pass) {
  for (const auto& slot : pass.slots) {
    if (!needed(pass, slot)) continue;  // resize.cpp
    auto failure = failure_of(pass, slot);
    if (!failure) continue;
    failure->slot = &slot;
    failure->recorded = recorded(pass, *failure);
    pass.failures.push_back(std::move(*failure));
  }
  const Failure* first = nullptr;
  Time oldest = Time::max();
  Time episode_end = pass.now();
  for (const auto& failure : pass.failures) {
    if (failure.recorded) continue;
    const Time time = failure.time.value_or(pass.now());
    oldest = std::min(oldest, time);
    episode_end = std::max(episode_end, time);  // the kubelet's clock may be ahead of ours
    const auto key = [&](const Failure& f) {
      return std::tuple(f.cause == Cause::kPeerLost, f.time.value_or(pass.now()), weight(f.cause));
    };
    if (first == nullptr || key(failure) < key(*first)) first = &failure;
  }
  if (first == nullptr) return false;
  // Code 80 is part of the failure of another worker, which may show later.
  if (first->cause == Cause::kPeerLost && pass.now() < oldest + kEpisode) {
    pass.wake_at(oldest + kEpisode);
    return false;
  }
  record_failure(pass, *first, pass.spec().restart_scope, episode_end);
  return true;
}

}  // namespace weir::reconcile
