// SPDX-License-Identifier: Apache-2.0
// Status as server-side apply bodies. Each field owner sends all its fields every time, because the
// server removes an omitted one.
#include "operator/api/encode.h"
#include "operator/api/fit.h"
#include "operator/api/job_fields.h"
#include "operator/api/json_write.h"
#include "operator/api/names.h"

namespace weir::api {
namespace {

using nlohmann::json;

// The uid makes the server refuse a status of a deleted job for a new job of the same name.
template <class S>
json apply_body(const PipelineJob& job, S status) {
  fit(status);
  json metadata = {{"name", job.meta.name}, {"namespace", job.meta.namespace_name}};
  if (!job.meta.uid.empty()) metadata["uid"] = job.meta.uid;
  json body = {{"apiVersion", kApiVersion},
               {"kind", "PipelineJob"},
               {"metadata", std::move(metadata)},
               {"status", json::object()}};
  fields(JobWriter(body["status"]), std::as_const(status));
  return body;
}

}  // namespace

std::string encode_status(const PipelineJob& job, const JobStatus& status, bool guarded) {
  json body = apply_body(job, status);
  if (guarded) body["metadata"]["resourceVersion"] = job.meta.resource_version;
  return dump_json(body);
}

std::string encode_report_status(const PipelineJob& job, const ReportStatus& status) {
  return dump_json(apply_body(job, status));
}

}  // namespace weir::api
