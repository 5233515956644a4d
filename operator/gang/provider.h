// SPDX-License-Identifier: Apache-2.0
// Gang and queue providers: which one a job uses, what its pods carry for it, and the object that
// it needs (operator/gang/README.md). Pure; talks to nobody.
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
  std::optional<api::Refusal> refusal;  // set: the job cannot run with what it asks for
};
// Auto looks only at what the user wrote: the queue label, then schedulerName; never at what is
// installed. fixed: status.gangProvider; a provider stays for the job's life.
Choice choose(const api::PipelineJob& job, const std::string& fixed);

// What each pod of the job carries.
struct PodMarks {
  std::map<std::string, std::string> labels, annotations;
  std::string scheduler_name;  // "" = as the user wrote
};
// group: of the job; pod_group: Kueue's (pod_group_name). workers: all pods of the job, without
// spares.
PodMarks marks(Provider provider, const api::PipelineJob& job, const std::string& group,
               const std::string& pod_group, int workers);

// Kueue's pod groups. A group lives as long as its pods are made again; once closed it is over for
// good: Kueue ends its Workload, gives the quota back and lets go of the pods, which are otherwise
// kept, even deleted ones, until others take their places.
using Pods = std::vector<std::shared_ptr<const api::Pod>>;
// The group of new pods: that of the pods that are there, unless it is closed. generation: of the
// new pods (annotation kPodGeneration), names the next group.
std::string pod_group_name(const api::PipelineJob& job, const Pods& pods, int generation);
// The pod whose annotation (encode_close) closes the group of these pods; null: nothing is open.
const api::Pod* pod_to_close(const Pods& pods);
std::string encode_close();  // merge patch of that pod

// The object named like the job, as a server-side apply body; nothing for None and Kueue. Its
// minResources are left out when a quantity cannot be read.
std::optional<std::string> encode_object(Provider provider, const api::PipelineJob& job,
                                         int data_parallel);

}  // namespace weir::gang
