// SPDX-License-Identifier: Apache-2.0
// How and when the worker in a pod ended. Its trainer container decides, not the pod's phase: other
// containers may run for ever, and a pod may fail before any container has run.
#include <algorithm>

#include "operator/controller/reconcile/lifecycle/lifecycle.h"

namespace weir::reconcile {
namespace {

constexpr auto kOutOfMemoryReason = "OOMKilled";
constexpr int kMostEndsInPlace = 2;  // after one more the pod is made again

Cause cause_of_exit(int exit_code, const std::string& reason) {
  if (reason == kOutOfMemoryReason) return Cause::kOutOfMemory;
  // The kubelet sets this reason if it does not find the container again, as after a reboot.
  if (reason == "ContainerStatusUnknown") return Cause::kNodeLost;
  const auto exit = static_cast<protocol::Exit>(exit_code);
  const auto found = std::ranges::find(kCauses, exit, &CauseRow::exit);
  const bool known = exit != protocol::Exit::kFinished && found != std::end(kCauses);
  return known ? found->cause : Cause::kCrashed;
}

std::string ended_text(int exit_code, const std::string& reason, const std::string& message) {
  return "exit code " + std::to_string(exit_code) +
         (reason.empty() || reason == "Error" ? "" : " (" + reason + ")") +
         (message.empty() ? "" : ": " + message);
}

const api::PodCondition* disruption_of(const api::Pod& pod) {
  const auto found = std::ranges::find_if(pod.conditions, [](const auto& condition) {
    return condition.type == "DisruptionTarget" && condition.status == "True";
  });
  return found == pod.conditions.end() ? nullptr : &*found;
}

// When the deletion was requested. deletionTimestamp is the end of the grace period.
std::optional<Time> deletion_asked(const api::Pod& pod) {
  if (!pod.meta.deleting) return std::nullopt;
  return *pod.meta.deleting - std::chrono::seconds(pod.meta.deletion_grace_seconds);
}

bool disrupted(const api::Pod& pod) {
  return disruption_of(pod) != nullptr;
}

// Whether the pod was ended because it exceeded its own limits. The kubelet sets no condition
// DisruptionTarget then. A pod that was rejected at once, because the node lacks resources, has no
// containers.
bool over_own_limit(const api::Pod& pod) {
  return !disrupted(pod) &&
         ((pod.reason == "Evicted" && pod.containers_seen) || pod.reason == "DeadlineExceeded");
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

std::string reason_text(const api::Pod& pod) {
  const std::string message = trimmed(pod.message);
  return pod.reason + (message.empty() ? "" : ": " + message);
}

// The newest end of the trainer; nothing: it has not ended, or its pod has failed without it.
std::optional<api::ContainerEnd> last_end(const api::Pod& pod) {
  if (!pod.exit_code) return pod.phase == "Failed" ? std::nullopt : pod.last_end;
  return api::ContainerEnd{"trainer", *pod.exit_code, pod.termination_reason,
                           pod.termination_message, pod.ended};
}

// Whether the pod is made again although its kubelet would restart the trainer, or has: it has
// ended too often here, or it needs a plan that takes less memory.
bool given_up(const api::Pod& pod) {
  if (!pod.final_exit_codes) return false;
  const auto end = last_end(pod);
  return ends_in_place(pod) > kMostEndsInPlace || (end && end->reason == kOutOfMemoryReason);
}

// Whether the kubelet restarts the trainer that has ended just now.
bool is_restarted(const api::Pod& pod) {
  return pod.exit_code && pod.final_exit_codes && pod.phase == "Running" && !pod.meta.deleting &&
         std::ranges::find(*pod.final_exit_codes, *pod.exit_code) == pod.final_exit_codes->end();
}

}  // namespace

int ends_in_place(const api::Pod& pod) {
  if (!pod.final_exit_codes) return 0;
  const bool waits = pod.waiting_reason == kBackOff;
  return pod.container_restarts + (is_restarted(pod) || waits ? 1 : 0);
}

bool worker_done(const api::Pod& pod) {
  return pod.exit_code ? *pod.exit_code == 0 : pod.phase == "Succeeded";
}

bool worker_failed(const api::Pod& pod) {
  if (worker_done(pod)) return false;
  if (given_up(pod)) return true;
  return pod.exit_code ? !is_restarted(pod) : pod.phase == "Failed";
}

bool worker_ended(const api::Pod& pod) {
  return worker_done(pod) || worker_failed(pod);
}

Time ended_at(const api::Pod& pod) {
  if (const auto end = last_end(pod); end && end->time) return *end->time;
  if (!pod.exit_code && pod.failed_init && pod.failed_init->time) return *pod.failed_init->time;
  Time newest = pod.meta.created;
  for (const auto& condition : pod.conditions) {
    newest = std::max(newest, condition.since.value_or(newest));
  }
  return newest;
}

Time failed_at(const api::Pod& pod) {
  std::optional<Time> first;
  const auto at = [&](const std::optional<Time>& time) {
    if (time && (!first || *time < *first)) first = time;
  };
  if (worker_ended(pod)) at(ended_at(pod));
  at(deletion_asked(pod));
  if (const auto* target = disruption_of(pod)) at(target->since);
  return first.value_or(ended_at(pod));
}

Failure failed_worker(const api::Pod& pod) {
  Failure failure;
  failure.time = failed_at(pod);
  if (const auto end = last_end(pod)) {
    failure.exit_code = end->exit_code;
    failure.cause = cause_of_exit(end->exit_code, end->reason);
    failure.text = ended_text(end->exit_code, end->reason, trimmed(end->message));
  } else if (pod.failed_init) {
    const api::ContainerEnd& init = *pod.failed_init;
    failure.cause = init.reason == kOutOfMemoryReason ? Cause::kOutOfMemory : Cause::kCrashed;
    failure.text = "init container " + init.container + ": " +
                   ended_text(init.exit_code, init.reason, init.message);
  } else if (!pod.reason.empty()) {
    failure.cause = Cause::kRejected;
    failure.text = "rejected by the kubelet, " + reason_text(pod);
  } else {
    failure.text = "failed";
  }
  // The next pod would end in the same way, so the cause stays even if the pod was disrupted.
  if (row(failure.cause).reaction == Reaction::kFailJob) return failure;
  if (over_own_limit(pod)) {
    failure.cause = Cause::kLimitExceeded;
    failure.text = reason_text(pod);
    if (failure.exit_code) {
      failure.text += " (exit code " + std::to_string(*failure.exit_code) + ")";
    }
  } else if (disrupted(pod)) {
    failure.cause = Cause::kDisrupted;
    failure.text += ", disrupted";
  } else if (failure.cause == Cause::kCrashed && pod.meta.deleting &&
             *deletion_asked(pod) <= ended_at(pod)) {
    failure.cause = Cause::kPodDeleted;  // it was killed at the end of its grace period
  }
  return failure;
}

// Silence alone causes no restart; WorkersReady becomes Unknown after member_silent.
bool silent(const View& view, const Draft& draft) {
  const auto& report = view.snapshot.report;
  return report ? view.now() - report->received > view.tunables.member_silent
                : draft.status.plan.applied_revision > 0 &&
                      view.now() >= view.snapshot.leading_since + kNewLeaderWaits;
}

bool trains_reduced(const View& view, const Draft& draft) {
  const auto& report = view.snapshot.report;
  return report && !report->body.lost_replicas.empty() && !report->body.stall &&
         draft.status.plan.applied_revision > 0 && !silent(view, draft);
}

bool goes_without_missing(const View& view, const Draft& draft) {
  if (trains_reduced(view, draft)) return true;
  const auto stall = stalled(view, draft);
  if (!stall) return false;
  const auto& lost = view.snapshot.report->body.lost_replicas;
  const auto gone = [&](int replica) { return std::ranges::find(lost, replica) != lost.end(); };
  const auto is_there = [&](const schedule::RankPlace& rank) {
    return std::ranges::any_of(view.slots, [&](const Slot& slot) {
      return slot.pod && slot.pod->meta.uid == rank.pod_uid && !slot.pod->meta.deleting &&
             registered(view, slot);
    });
  };
  const auto& waited_for = view.snapshot.report->body.stall->ranks;
  return !lost.empty() && std::ranges::none_of(waited_for, gone, &protocol::StalledRank::replica) &&
         std::ranges::all_of(view.plan->ranks, [&](const schedule::RankPlace& rank) {
           return gone(rank.replica) || is_there(rank);
         });
}

}  // namespace weir::reconcile
