// SPDX-License-Identifier: Apache-2.0
// Sailor's file of bandwidths, network_coeffs_all_homo.json: `inter` or `intra`, kind of device,
// devices per server: [[a, b, c], largest bytes/s], a RateCurve. Between unlike devices the slower
// curve holds.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "operator/planner/model/cluster.h"
#include "worker/base/result.h"

namespace weir::planner {

struct SailorNetwork {
  // (kind of device, devices per server) -> rate between servers, and inside one
  std::map<std::pair<std::string, int>, RateCurve> between, inside;
};

// kInvalid: "NAME:LINE: POINTER: reason".
Result<SailorNetwork> decode_sailor_network(std::string_view json, const std::string& name);

}  // namespace weir::planner
