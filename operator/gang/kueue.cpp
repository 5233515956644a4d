// SPDX-License-Identifier: Apache-2.0
// Names are those of Kueue's documentation, "Run plain pods", pod groups. Kueue itself adds and
// removes its scheduling gate.
#include "operator/gang/kueue.h"

namespace weir::gang {
namespace {

constexpr auto kPrefix = "kueue.x-k8s.io/";
constexpr auto kGroupLabel = "kueue.x-k8s.io/pod-group-name";
constexpr auto kCountAnnotation = "kueue.x-k8s.io/pod-group-total-count";

}  // namespace

PodMarks kueue_marks(const api::PipelineJob& job, int workers) {
  PodMarks marks;
  for (const auto& [key, value] : job.meta.labels) {
    if (key.starts_with(kPrefix)) marks.labels[key] = value;
  }
  if (!job.spec.gang_queue.empty()) marks.labels[kQueueLabel] = job.spec.gang_queue;
  marks.labels[kGroupLabel] = job.meta.name;
  marks.annotations[kCountAnnotation] = std::to_string(workers);
  return marks;
}

}  // namespace weir::gang
