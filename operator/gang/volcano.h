// SPDX-License-Identifier: Apache-2.0
// Volcano: one PodGroup for the job. Inside the room only.
#pragma once

#include <optional>
#include <string>

#include "operator/gang/provider.h"

namespace weir::gang {

constexpr auto kVolcanoScheduler = "volcano";

PodMarks volcano_marks(const api::PipelineJob& job, const std::string& group);
std::string volcano_pod_group(const api::PipelineJob& job, int data_parallel);

}  // namespace weir::gang
