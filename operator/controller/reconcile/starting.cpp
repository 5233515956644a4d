// SPDX-License-Identifier: Apache-2.0
// What keeps a pod that has a node from starting: an image, a ConfigMap, a Secret, a volume. Of
// some of it the pod's status says nothing; then the pod's newest event is asked for.
#include <algorithm>
#include <array>

#include "operator/controller/reconcile/pass.h"

namespace weir::reconcile {
namespace {

constexpr std::chrono::seconds kAskAfter{5};  // a pod usually starts before that
constexpr std::chrono::seconds kAskAgain{10};

bool waits_as_usual(const api::Pod& pod) {
  return pod.waiting_reason.empty() || pod.waiting_reason == "ContainerCreating" ||
         pod.waiting_reason == "PodInitializing";
}

// Since when its kubelet could have started it.
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

std::string cannot_start(const Pass& pass, const api::Pod& pod) {
  if (!is_starting(pod)) return "";
  if (!waits_as_usual(pod)) return pod.waiting_reason + ": " + pod.waiting_message;
  const auto warning = pass.snapshot.pod_warnings.find(pod.meta.uid);
  return warning == pass.snapshot.pod_warnings.end() ? "" : warning->second.text;
}

// One pod at a time: what keeps one from starting usually keeps all.
void ask_why_pods_wait(Pass& pass) {
  for (const auto& slot : pass.slots) {
    if (!slot.pod || !is_starting(*slot.pod) || !waits_as_usual(*slot.pod)) continue;
    const auto known = pass.snapshot.pod_warnings.find(slot.pod->meta.uid);
    Time due = has_node_since(*slot.pod) + kAskAfter;
    if (known != pass.snapshot.pod_warnings.end()) {
      // A pull of half an hour is not worth a question every ten seconds.
      const Time::duration patience = (known->second.asked - due) / 4;
      due = known->second.asked + std::max<Time::duration>(kAskAgain, patience);
    }
    if (pass.now() < due) return pass.wake_at(due);
    return pass.act(ReadPodWarning{slot.pod->meta.name, slot.pod->meta.uid});
  }
}

}  // namespace weir::reconcile
