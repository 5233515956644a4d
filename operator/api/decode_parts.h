// SPDX-License-Identifier: Apache-2.0
// Declarations that decode.cpp, decode_job.cpp and decode_status.cpp share; not for other rooms.
#pragma once

#include "operator/api/json_read.h"
#include "operator/api/objects.h"
#include "operator/api/pipeline_job.h"

namespace weir::api {

ObjectMeta decode_meta(const Field& metadata);
PipelineJob read_job(const Field& root);
JobStatus read_status(const Field& status);
ReportStatus read_report(const Field& status);

}  // namespace weir::api
