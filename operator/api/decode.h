// SPDX-License-Identifier: Apache-2.0
// JSON of the API server -> structs. Nothing here throws; an error is kInvalid and names the field.
// Unknown fields are ignored. Enum values stay text, so that a newer CRD can be read.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "operator/api/objects.h"
#include "operator/api/pipeline_job.h"
#include "worker/base/result.h"

namespace weir::api {

Result<PipelineJob> decode_job(std::string_view json);
Result<Pod> decode_pod(std::string_view json);
Result<Service> decode_service(std::string_view json);
Result<ConfigMap> decode_config_map(std::string_view json);
Result<Node> decode_node(std::string_view json);
Result<PodGroup> decode_pod_group(std::string_view json);
Result<ObjectMeta> decode_object_meta(std::string_view json);  // of any object

// The answer to a LIST (metav1.List). Each item is JSON text without managedFields.
struct ListPage {
  std::string resource_version, continue_token;
  std::vector<std::string> items;
};
Result<ListPage> decode_list(std::string_view json);

// list: events of events.k8s.io/v1. The answer is "<reason>: <note>" of the newest event in one
// line, or "" if the newest event is no warning.
Result<std::string> newest_warning(std::string_view list);

// One line of the answer to a WATCH.
struct WatchEvent {
  std::string type;              // ADDED MODIFIED DELETED BOOKMARK ERROR
  std::string object;            // JSON text
  std::string resource_version;  // of the object, also of a BOOKMARK's
  int error_code = 0;            // this and the next two: the Status in an ERROR
  std::string error_reason, error_message;
};
Result<WatchEvent> decode_watch_event(std::string_view line);

}  // namespace weir::api
