// SPDX-License-Identifier: Apache-2.0
// spec.workerGroups[].template: the CRD admits any JSON object. Parts that the operator merges into
// are checked here for their type; the API server checks the rest in a dry run.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "operator/api/encode_parts.h"

namespace weir::api {
namespace {

using nlohmann::json;

Error invalid(const WorkerGroup& group, const std::string& what) {
  return {Code::kInvalid, "workerGroups[" + group.name + "].template" + what};
}

Status check_metadata(const WorkerGroup& group, const json& metadata) {
  for (const auto& [key, value] : metadata.items()) {
    if (key == "creationTimestamp" && value.is_null()) continue;  // Go programs print this
    if (key != "labels" && key != "annotations") {
      return invalid(group, ".metadata." + key + ": only labels and annotations may be set");
    }
    if (!value.is_object()) return invalid(group, ".metadata." + key + ": not an object");
  }
  return Unit{};
}

Status check_containers(const WorkerGroup& group, const json& spec) {
  for (const char* key : {"containers", "initContainers", "volumes", "schedulingGates"}) {
    const auto list = spec.find(key);
    if (list == spec.end()) continue;
    if (!list->is_array()) return invalid(group, ".spec." + std::string(key) + ": not a list");
    for (const json& item : *list) {
      if (!item.is_object()) {
        return invalid(group, ".spec." + std::string(key) + ": an entry is not an object");
      }
    }
  }
  for (const json& container : spec.value("containers", json::array())) {
    for (const char* key : {"env", "volumeMounts", "ports"}) {
      if (container.contains(key) && !container[key].is_array()) {
        return invalid(group, ".spec.containers: " + std::string(key) + " is not a list");
      }
    }
  }
  return Unit{};
}

// Checks each part on the paths that add_affinity extends, from the outside in.
Status check_affinity(const WorkerGroup& group, const json& spec) {
  static constexpr auto kPreferred =
      "affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution";
  static constexpr auto kRequired =
      "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution";
  const std::string terms = std::string(kRequired) + ".nodeSelectorTerms";
  const std::array<std::pair<std::string, bool>, 8> parts{{{"nodeSelector", false},
                                                           {"securityContext", false},
                                                           {"affinity", false},
                                                           {"affinity.podAffinity", false},
                                                           {kPreferred, true},
                                                           {"affinity.nodeAffinity", false},
                                                           {kRequired, false},
                                                           {terms, true}}};
  const auto found = [&spec](std::string path) -> const json* {
    std::ranges::replace(path, '.', '/');
    const json::json_pointer pointer("/" + path);
    return spec.contains(pointer) ? &spec.at(pointer) : nullptr;
  };
  for (const auto& [path, list] : parts) {
    const json* part = found(path);
    if (part == nullptr || (list ? part->is_array() : part->is_object())) continue;
    return invalid(group, ".spec." + path + (list ? ": not a list" : ": not an object"));
  }
  const json* all = found(terms);
  for (const json& term : all == nullptr ? json::array() : *all) {
    if (!term.is_object()) return invalid(group, ".spec." + terms + ": an entry is not an object");
    if (term.contains("matchFields") && !term["matchFields"].is_array()) {
      return invalid(group, ".spec." + terms + ": matchFields is not a list");
    }
  }
  return Unit{};
}

}  // namespace

Result<json> checked_template(const WorkerGroup& group) {
  json whole = json::object();
  if (!group.template_json.empty()) {
    whole = json::parse(group.template_json, nullptr, false);
    if (!whole.is_object()) return invalid(group, ": not an object");
  }
  for (const auto& [key, value] : whole.items()) {
    if (key != "metadata" && key != "spec") return invalid(group, ": unknown field " + key);
    if (!value.is_object()) return invalid(group, "." + key + ": not an object");
  }
  const json spec = whole.value("spec", json::object());
  WEIR_OK(check_metadata(group, whole.value("metadata", json::object())));
  WEIR_OK(check_containers(group, spec));
  WEIR_OK(check_affinity(group, spec));
  return whole;
}

}  // namespace weir::api
