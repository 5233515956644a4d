// SPDX-License-Identifier: Apache-2.0
// The names come from Kueue's documentation ("Run plain pods", pod groups) and its
// pkg/controller/jobs/pod/constants. Kueue itself adds and removes its scheduling gate.
#include "operator/gang/kueue.h"

#include <set>

namespace weir::gang {
namespace {

constexpr auto kPrefix = "kueue.x-k8s.io/";
constexpr auto kGroupLabel = "kueue.x-k8s.io/pod-group-name";
constexpr auto kCountAnnotation = "kueue.x-k8s.io/pod-group-total-count";
// A new pod replaces a pod of the same role. By default Kueue uses the hash of the pod's shape,
// which changes with the avoided nodes: a pod that is made again would have no role and wait.
constexpr auto kRoleAnnotation = "kueue.x-k8s.io/role-hash";
constexpr auto kRetriable = "kueue.x-k8s.io/retriable-in-group";

std::string group_of(const api::Pod& pod) {
  const auto found = pod.meta.labels.find(kGroupLabel);
  return found == pod.meta.labels.end() ? "" : found->second;
}

std::set<std::string> closed_groups(const Pods& pods) {
  std::set<std::string> closed;
  for (const auto& pod : pods) {
    const auto found = pod->meta.annotations.find(kRetriable);
    if (found != pod->meta.annotations.end() && found->second == "false")
      closed.insert(group_of(*pod));
  }
  return closed;
}

}  // namespace

PodMarks kueue_marks(const api::PipelineJob& job, const std::string& group,
                     const std::string& pod_group, int workers) {
  PodMarks marks;
  for (const auto& [key, value] : job.meta.labels) {
    if (key.starts_with(kPrefix)) marks.labels[key] = value;
  }
  if (!job.spec.gang_queue.empty()) marks.labels[kQueueLabel] = job.spec.gang_queue;
  marks.labels[kGroupLabel] = pod_group;
  marks.annotations[kCountAnnotation] = std::to_string(workers);
  marks.annotations[kRoleAnnotation] = group;
  return marks;
}

const api::Pod* pod_to_close(const Pods& pods) {
  const auto closed = closed_groups(pods);
  for (const auto& pod : pods) {
    const std::string group = group_of(*pod);
    if (!group.empty() && !closed.contains(group)) return pod.get();
  }
  return nullptr;
}

std::string pod_group_name(const api::PipelineJob& job, const Pods& pods, int generation) {
  if (const api::Pod* open = pod_to_close(pods)) return group_of(*open);
  if (generation == 0) return job.meta.name;
  return job.meta.name + "." + std::to_string(generation);  // job names have no dots
}

std::string encode_close() {
  return R"({"metadata":{"annotations":{")" + std::string(kRetriable) + R"(":"false"}}})";
}

}  // namespace weir::gang
