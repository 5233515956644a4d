// SPDX-License-Identifier: Apache-2.0
// Where a worker pod would rather be, and where it must not be.
#include <nlohmann/json.hpp>

#include "operator/api/encode.h"
#include "operator/api/encode_parts.h"
#include "operator/api/names.h"
#include "worker/base/worker_index.h"

namespace weir::api {
namespace {

using nlohmann::json;

constexpr auto kHostname = "kubernetes.io/hostname";

json not_on(const std::string& node) {
  return {{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", {node}}};
}

}  // namespace

// Pods of a job prefer to be near each other; the narrowest topology key has the largest weight.
// Spares prefer nodes without the others: one that is lost with a worker is of no use. Required
// affinity could make pods unschedulable. Every required node term excludes the avoided nodes,
// because terms are alternatives.
void add_affinity(const PipelineJob& job, const PodInput& input, json& spec) {
  json affinity = spec.value("affinity", json::object());
  const json selector = {{"matchLabels", {{kJobName, job.meta.name}, {kJobUid, job.meta.uid}}}};
  const auto preferred_of = [&affinity](const char* kind) -> json& {
    json& terms = affinity[kind]["preferredDuringSchedulingIgnoredDuringExecution"];
    if (!terms.is_array()) terms = json::array();
    return terms;
  };
  const auto wish = [&selector](int weight, const std::string& key) {
    return json{{"weight", weight},
                {"podAffinityTerm", {{"labelSelector", selector}, {"topologyKey", key}}}};
  };
  const bool spare = is_spare(input.worker_index);
  if (spare) preferred_of("podAntiAffinity").push_back(wish(100, kHostname));
  json& preferred = preferred_of("podAffinity");
  const int keys = static_cast<int>(job.spec.topology_keys.size());
  for (int i = 0; i < keys; ++i) {
    const std::string& key = job.spec.topology_keys[static_cast<std::size_t>(i)];
    if (spare && key == kHostname) continue;
    preferred.push_back(wish(100 * (i + 1) / keys, key));
  }
  if (preferred.empty()) affinity.erase("podAffinity");
  if (!input.avoided_nodes.empty()) {
    json& terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                          ["nodeSelectorTerms"];
    if (!terms.is_array() || terms.empty()) terms = json::array({json::object()});
    for (json& term : terms) {
      json& fields = term["matchFields"];
      if (!fields.is_array()) fields = json::array();
      for (const std::string& node : input.avoided_nodes) {
        fields.push_back(not_on(node));
      }
    }
  }
  for (const std::string& node : input.last_nodes) {
    preferred_of("nodeAffinity")
        .push_back(
            {{"weight", 100}, {"preference", {{"matchFields", json::array({not_on(node)})}}}});
  }
  if (!affinity.empty()) spec["affinity"] = std::move(affinity);
}

}  // namespace weir::api
