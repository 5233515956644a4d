// SPDX-License-Identifier: Apache-2.0
// The names come from Volcano's API scheduling.volcano.sh/v1beta1.
#include "operator/gang/volcano.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "operator/api/encode.h"
#include "operator/api/json_write.h"
#include "operator/api/names.h"
#include "operator/api/resources.h"

namespace weir::gang {
namespace {

using nlohmann::json;

constexpr auto kGroupAnnotation = "scheduling.k8s.io/group-name";
constexpr auto kTaskAnnotation = "volcano.sh/task-spec";

}  // namespace

PodMarks volcano_marks(const api::PipelineJob& job, const std::string& group) {
  PodMarks marks;
  marks.annotations[kGroupAnnotation] = job.meta.name;
  marks.annotations[kTaskAnnotation] = group;
  marks.scheduler_name = kVolcanoScheduler;
  return marks;
}

std::string volcano_pod_group(const api::PipelineJob& job, int data_parallel) {
  json spec = json::object();
  int members = 0;
  api::Resources total;
  bool readable = true;
  for (const api::WorkerGroup& group : job.spec.worker_groups) {
    const int count = group.count * data_parallel;
    members += count;
    spec["minTaskMember"][group.name] = count;
    const auto requests = api::requests_of(group);
    readable = readable && requests.has_value();
    for (const auto& [resource, value] : requests.value_or(api::Resources{}))
      total[resource] += value * count;
  }
  spec["minMember"] = members;
  if (!job.spec.gang_queue.empty()) spec["queue"] = job.spec.gang_queue;
  if (!job.spec.worker.priority_class.empty()) {
    spec["priorityClassName"] = job.spec.worker.priority_class;
  }
  if (readable) {
    for (const auto& [resource, value] : total)
      spec["minResources"][resource] = api::quantity_text(value);
  }
  return api::dump_json({{"apiVersion", "scheduling.volcano.sh/v1beta1"},
                         {"kind", "PodGroup"},
                         {"metadata",
                          {{"name", job.meta.name},
                           {"namespace", job.meta.namespace_name},
                           {"labels", api::job_labels(job)},
                           {"ownerReferences",
                            {{{"apiVersion", api::kApiVersion},
                              {"kind", "PipelineJob"},
                              {"name", job.meta.name},
                              {"uid", job.meta.uid},
                              {"controller", true},
                              {"blockOwnerDeletion", true}}}}}},
                         {"spec", std::move(spec)}});
}

}  // namespace weir::gang
