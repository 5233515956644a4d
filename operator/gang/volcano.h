// SPDX-License-Identifier: Apache-2.0
// Volcano: the job has one PodGroup. Only this room includes it.
#pragma once

#include <optional>
#include <string>

#include "operator/gang/provider.h"

namespace weir::gang {

constexpr auto kVolcanoScheduler = "volcano";

PodMarks volcano_marks(const api::PipelineJob& job, const std::string& group);
std::string volcano_pod_group(const api::PipelineJob& job, int data_parallel);

}  // namespace weir::gang
