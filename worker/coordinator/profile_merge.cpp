// SPDX-License-Identifier: Apache-2.0
// Joins the profiles that ranks of several device classes have measured (planner.md 1.3).
#include <exception>

#include <nlohmann/json.hpp>

#include "worker/coordinator/startup.h"

namespace weir::coordinator {
namespace {

using nlohmann::json;

// Adds the times of `part` to `into`; false when the layers differ.
bool add_times(json& into, const json& part) {
  json& nodes = into.at("nodes");
  const json& others = part.at("nodes");
  if (nodes.size() != others.size()) return false;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].at("id") != others[i].at("id")) return false;
    for (const auto& [device, times] : others[i].at("times").items()) {
      nodes[i]["times"][device] = times;
    }
  }
  return true;
}

}  // namespace

Result<std::string> merge_profiles(const std::vector<std::string>& parts) {
  if (parts.size() == 1) return parts.front();
  try {
    json merged = json::parse(parts.at(0));
    for (std::size_t i = 1; i < parts.size(); ++i) {
      if (!add_times(merged, json::parse(parts[i]))) {
        return Error{Code::kInvalid, "profiles of two device classes name different layers"};
      }
    }
    return merged.dump();
  } catch (const std::exception& failure) {
    return Error{Code::kInvalid, std::string("measured profile: ") + failure.what()};
  }
}

}  // namespace weir::coordinator
