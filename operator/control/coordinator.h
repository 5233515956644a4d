// SPDX-License-Identifier: Apache-2.0
// Which pod coordinates the workers of a job (worker/protocol/README.md "Terms").
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "operator/api/pipeline_job.h"
#include "operator/cache/snapshot.h"
#include "worker/http/transport.h"
#include "worker/protocol/messages.h"

namespace weir::control_server {

// Value of the pod's label; "" = it has none.
std::string label(const api::Pod& pod, const char* name);
// Nothing: its pod is not in the cache.
std::optional<protocol::CoordinatorPlace> coordinator_of(const cache::JobView& view);
// Present term; the cache may be behind.
std::int64_t term_of(const api::PipelineJob& job);
// Whether the pod may speak for the job. While the job is in its first term, every pod of index 0
// may: one that is being deleted still reports while the next one starts.
bool coordinates(const api::PipelineJob& job, const api::Pod& pod);
// 421, for a caller that does not coordinate. A replica's cache may be behind, so the caller
// compares the term in it with its own.
http::Response misdirected(const api::PipelineJob& job,
                           const std::optional<protocol::CoordinatorPlace>& coordinator);

}  // namespace weir::control_server
