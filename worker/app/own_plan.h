// SPDX-License-Identifier: Apache-2.0
// The plan of a worker that trains alone: one stage with all layers. Pure.
#pragma once

#include <string>

#include "worker/schedule/plan.h"

namespace weir::app {

schedule::Plan own_plan(const std::string& job_uid, const std::string& pod,
                        const std::string& pod_uid, int layers, int micro_batches,
                        int micro_batch_size);

}  // namespace weir::app
