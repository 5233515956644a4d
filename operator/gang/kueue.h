// SPDX-License-Identifier: Apache-2.0
// Kueue through its pod integration: the pods of a job form one pod group. Only this room includes
// it.
#pragma once

#include "operator/gang/provider.h"

namespace weir::gang {

constexpr auto kQueueLabel = "kueue.x-k8s.io/queue-name";

PodMarks kueue_marks(const api::PipelineJob& job, const std::string& group,
                     const std::string& pod_group, int workers);

}  // namespace weir::gang
