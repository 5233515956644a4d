// SPDX-License-Identifier: Apache-2.0
// JSON of the API server -> structs. Never throws; kInvalid names the field. Unknown fields are
// ignored, enum values kept as text.
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

// metav1.List as it comes from LIST: each item as JSON text.
struct ListPage {
  std::string resource_version, continue_token;
  std::vector<std::string> items;
};
Result<ListPage> decode_list(std::string_view json);

// Of a list of events (events.k8s.io/v1): reason and note of the newest one, in one line, if it is
// a warning; "": it is none.
Result<std::string> newest_warning(std::string_view list);

// One line of a WATCH.
struct WatchEvent {
  std::string type;              // ADDED MODIFIED DELETED BOOKMARK ERROR
  std::string object;            // JSON text
  std::string resource_version;  // of the object; of a BOOKMARK too
  int error_code = 0;            // of an ERROR's Status
  std::string error_reason, error_message;
};
Result<WatchEvent> decode_watch_event(std::string_view line);

}  // namespace weir::api
