// SPDX-License-Identifier: Apache-2.0
// Kubernetes quantities, and the resources that a worker of a group requests. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/pipeline_job.h"

namespace weir::api {

__extension__ typedef __int128 Int128;  // NOLINT: no other way without a pedantic warning

// Amount by resource name, in thousandths.
using Resources = std::map<std::string, Int128>;

// A Kubernetes quantity such as "500m", "1.5", "2Gi" or "1e3", in thousandths, rounded up. Nothing
// if the text is no quantity.
std::optional<Int128> read_quantity(const std::string& text);
std::string quantity_text(Int128 thousandths);

// Requests of container trainer of one worker. The template's resources win over the group's. A
// limit without a request counts as the request, as the API server does it. Nothing if a quantity
// cannot be read.
std::optional<Resources> requests_of(const WorkerGroup& group);

// The requested CPUs, rounded up, of container trainer if it has no limit: its share when the node
// is busy. With a limit the worker reads its quota itself.
std::optional<int> cpus_without_limit(const WorkerGroup& group);

// Whether the tolerations of the group's pods (the template's, else the group's) match all taints
// that keep pods away.
bool tolerates(const WorkerGroup& group, const std::vector<Taint>& taints);
// nodeSelector of the group's pods: that of the group, overridden by that of the template.
std::map<std::string, std::string> node_selector_of(const WorkerGroup& group);

}  // namespace weir::api
