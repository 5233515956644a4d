// SPDX-License-Identifier: Apache-2.0
// Gang and queue providers: which one a job uses, the labels and annotations of its pods, and the
// object that it needs (operator/gang/README.md). Pure.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/objects.h"
#include "operator/api/pipeline_job.h"
#include "operator/api/validate.h"

namespace weir::gang {

enum class Provider : unsigned char { kNone, kKueue, kVolcano };
const char* name(Provider provider);  // as in status.gangProvider

struct Choice {
  Provider provider = Provider::kNone;
  std::optional<api::Refusal> refusal;  // set = the job cannot run with the provider in its spec
};
// Auto depends only on what the user wrote, first the queue label, then schedulerName, and never on
// what is installed. fixed: status.gangProvider, since a job keeps its provider for life.
Choice choose(const api::PipelineJob& job, const std::string& fixed);

// Labels, annotations and scheduler that the provider gives each pod of the job.
struct PodMarks {
  std::map<std::string, std::string> labels, annotations;
  std::string scheduler_name;  // "" = the one in the user's template or spec
};
// group: the pod's worker group. pod_group: the pod group of Kueue (pod_group_name). workers:
// number of pods of the job, spares too.
PodMarks marks(Provider provider, const api::PipelineJob& job, const std::string& group,
               const std::string& pod_group, int workers);

// Kueue keeps each pod of a pod group, even a deleted one, until another pod replaces it. When a
// group is closed, Kueue ends its Workload, frees the quota and releases the pods. A closed group
// cannot be used again.
using Pods = std::vector<std::shared_ptr<const api::Pod>>;
// The pod group for new pods: the open group of the pods made since the last resume, or a new one.
// pods: these, since what is left of a closed group may have lost the pod with the mark.
// generation: value of annotation kPodGeneration of the new pods, which is part of a new group's
// name.
std::string pod_group_name(const api::PipelineJob& job, const Pods& pods, int generation);
// The pod that gets the annotation of encode_close, which closes the group of these pods; null = no
// group is open.
const api::Pod* pod_to_close(const Pods& pods);
std::string encode_close();  // merge patch of that pod

// The provider's object, which has the job's name, as a server-side apply body; nothing for None
// and Kueue. It has no minResources if a quantity cannot be read.
std::optional<std::string> encode_object(Provider provider, const api::PipelineJob& job,
                                         int data_parallel);

}  // namespace weir::gang
