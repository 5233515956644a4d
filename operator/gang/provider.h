// SPDX-License-Identifier: Apache-2.0
// Gang and queue providers (operator.md 8): which one a job uses, what its pods carry for it, and
// the object that it needs. Pure; talks to nobody.
#pragma once

#include <map>
#include <optional>
#include <string>

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
// workers: all pods of the job, without spares.
PodMarks marks(Provider provider, const api::PipelineJob& job, const std::string& group,
               int workers);

// The object named like the job, as a server-side apply body; nothing for None and Kueue. Its
// minResources are left out when a quantity cannot be read.
std::optional<std::string> encode_object(Provider provider, const api::PipelineJob& job,
                                         int data_parallel);

}  // namespace weir::gang
