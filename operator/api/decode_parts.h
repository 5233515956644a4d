// SPDX-License-Identifier: Apache-2.0
// Declarations that decode.cpp and decode_job.cpp share; not for other rooms.
#pragma once

#include "operator/api/json_read.h"
#include "operator/api/objects.h"
#include "operator/api/pipeline_job.h"

namespace weir::api {

ObjectMeta decode_meta(const Field& metadata);
PipelineJob read_job(const Field& root);

}  // namespace weir::api
