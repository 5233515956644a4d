// SPDX-License-Identifier: Apache-2.0
// Quantities and what a worker of a group requests. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/pipeline_job.h"

namespace weir::api {

__extension__ typedef __int128 Int128;  // NOLINT: no other way without a pedantic warning

// By resource name, in thousandths.
using Resources = std::map<std::string, Int128>;

// A Kubernetes quantity in thousandths, exact: "500m", "1.5", "2Gi", "1e3". Nothing when it is
// none; what is finer than a thousandth is rounded up.
std::optional<Int128> read_quantity(const std::string& text);
std::string quantity_text(Int128 thousandths);

// Of container trainer of one worker: the template's resources win over the group's, a limit
// without a request counts as the request, as the API server has it. Nothing when a quantity
// cannot be read.
std::optional<Resources> requests_of(const WorkerGroup& group);

// Do the tolerations of the group's pods (the template's, else the group's) bear all taints that
// keep pods away?
bool tolerates(const WorkerGroup& group, const std::vector<Taint>& taints);
// nodeSelector of the group's pods: that of the group, and of the template on top.
std::map<std::string, std::string> node_selector_of(const WorkerGroup& group);

}  // namespace weir::api
