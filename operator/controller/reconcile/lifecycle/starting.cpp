// SPDX-License-Identifier: Apache-2.0
// Finds why a pod that has a node does not start: an image, a ConfigMap, a Secret, a volume. If the
// pod's status does not show the reason, its newest event is read.
#include <algorithm>
#include <array>

#include "operator/controller/reconcile/lifecycle/lifecycle.h"

namespace weir::reconcile {
namespace {

constexpr std::chrono::seconds kAskAfter{5};  // a pod usually starts before that
constexpr std::chrono::seconds kAskAgain{10};

bool waits_as_usual(const api::Pod& pod) {
  return pod.waiting_reason.empty() || pod.waiting_reason == "ContainerCreating" ||
         pod.waiting_reason == "PodInitializing";
}

// Since when the kubelet could have started the pod.
Time has_node_since(const api::Pod& pod) {
  for (const auto& condition : pod.conditions) {
    if (condition.type == "PodScheduled" && condition.status == "True")
      return condition.since.value_or(pod.meta.created);
  }
  return pod.meta.created;
}

bool is_starting(const api::Pod& pod) {
  return !pod.node.empty() && !pod.started && !worker_ended(pod) && !pod.meta.deleting;
}

}  // namespace

std::string cannot_start(const View& view, const api::Pod& pod) {
  if (!is_starting(pod)) return "";
  if (!waits_as_usual(pod)) return pod.waiting_reason + ": " + pod.waiting_message;
  const auto warning = view.snapshot.pod_warnings.find(pod.meta.uid);
  return warning == view.snapshot.pod_warnings.end() ? "" : warning->second.text;
}

// Reads the events of one pod at a time, since usually all pods wait for the same reason.
void ask_why_pods_wait(const View& view, Draft& draft) {
  for (const auto& slot : view.slots) {
    if (!slot.pod || !is_starting(*slot.pod) || !waits_as_usual(*slot.pod)) continue;
    const auto known = view.snapshot.pod_warnings.find(slot.pod->meta.uid);
    Time due = has_node_since(*slot.pod) + kAskAfter;
    if (known != view.snapshot.pod_warnings.end()) {
      // The interval grows with the waiting time; pulling an image may take half an hour.
      const Time::duration patience = (known->second.asked - due) / 4;
      due = known->second.asked + std::max<Time::duration>(kAskAgain, patience);
    }
    if (view.now() < due) return draft.wake_at(due);
    return draft.ask(ReadPodWarning{slot.pod->meta.name, slot.pod->meta.uid});
  }
}

}  // namespace weir::reconcile
