// SPDX-License-Identifier: Apache-2.0
// operator/planner/model/README.md "cluster.json" (weir.dev/cluster/v1) and its short form as text
// to a Cluster. Refuses with "NAME:LINE: /json/pointer: reason".
#pragma once

#include <string>
#include <string_view>

#include "operator/planner/model/cluster.h"
#include "worker/base/result.h"

namespace weir::planner {

// `name` is what messages call the text, for example its file name.
Result<Cluster> decode_cluster(std::string_view json, const std::string& name);

// "4xA:32e9@1e9+4xB:16e9/2": count, class, memory in bytes, "@" bandwidth in B/s, "/" times as
// slow. Every device is a server of its own, s0, s1, ...; memory, bandwidth and factor may be
// absent (no limit, the last bandwidth named or 1.25e9, 1). Links have no latency, and no memory is
// reserved: what is written is all there is.
Result<Cluster> decode_short_cluster(std::string_view text);

}  // namespace weir::planner
