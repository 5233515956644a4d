// SPDX-License-Identifier: Apache-2.0
// Pods, Services, ConfigMaps, Nodes, PodGroups, lists and watch lines. Jobs: decode_job.cpp.
#include "operator/api/decode.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "operator/api/decode_parts.h"
#include "operator/api/json_read.h"
#include "operator/api/json_span.h"

namespace weir::api {

ObjectMeta decode_meta(const Field& meta) {
  ObjectMeta out;
  out.name = meta["name"].text();
  out.namespace_name = meta["namespace"].text();
  out.uid = meta["uid"].text();
  out.resource_version = meta["resourceVersion"].text();
  out.generation = meta["generation"].integer64();
  out.labels = meta["labels"].text_map();
  out.annotations = meta["annotations"].text_map();
  if (const auto created = meta["creationTimestamp"].time()) out.created = *created;
  out.deleting = meta["deletionTimestamp"].time();
  out.deletion_grace_seconds = meta["deletionGracePeriodSeconds"].integer64();
  for (const Field& owner : meta["ownerReferences"].items()) {
    if (owner["controller"].boolean()) out.owner_uid = owner["uid"].text();
  }
  return out;
}

namespace {

// The object with those members that keep(path) wants; path is of one or two keys, the second ""
// for the whole member. A text that is no object stays as it is: parse_json will say so.
template <class Keep>
std::string reduced(std::string_view text, Keep&& keep) {
  const auto write = [](std::string& out, std::string_view key, std::string_view value) {
    out += out.size() == 1 ? "" : ",";
    out.append(key).append(":").append(value);
  };
  const auto members = json_members(text);
  if (!members) return std::string(text);
  std::string out = "{";
  for (const auto& [key, value] : *members) {
    const std::string_view name = json_characters(key);
    if (!keep(name, "")) continue;
    const auto inner = json_members(value);
    if (!inner) {
      write(out, key, value);
      continue;
    }
    std::string part = "{";
    for (const auto& [inner_key, inner_value] : *inner) {
      if (keep(name, json_characters(inner_key))) write(part, inner_key, inner_value);
    }
    write(out, key, part + "}");
  }
  return out + "}";
}

// metadata.managedFields are half of an object's bytes.
bool is_read(std::string_view member, std::string_view inner) {
  return member != "metadata" || inner != "managedFields";
}
bool is_read_of_pod(std::string_view member, std::string_view inner) {
  if (member != "spec")
    return (member == "metadata" || member == "status") && is_read(member, inner);
  return inner.empty() || inner == "nodeName" || inner == "schedulingGates";
}
bool is_read_of_any(std::string_view member, std::string_view inner) {
  return member == "metadata" && is_read(member, inner);
}

// Runs read(Field) on the parsed text and answers its value, or the first problem it met.
template <class T, class Read>
Result<T> decode(const char* kind, std::string_view text, Read&& read,
                 bool (*keep)(std::string_view, std::string_view) = is_read) {
  const auto root = parse_json(reduced(text, keep));
  if (!root) return root.error().with(kind);
  std::string problem;
  T value = read(Field(*root, problem));
  if (!problem.empty()) return Error{Code::kInvalid, std::string(kind) + ": " + problem};
  return value;
}

void decode_trainer(const Field& status, Pod& pod) {
  for (const Field& container : status["containerStatuses"].items()) {
    if (container["name"].text() != "trainer") continue;
    const Field state = container["state"];
    const Field ended = state["terminated"];
    if (ended.present()) {
      pod.exit_code = ended["exitCode"].integer();
      pod.termination_reason = ended["reason"].text();
      pod.termination_message = ended["message"].text();
      pod.ended = ended["finishedAt"].time();
    }
    pod.waiting_reason = state["waiting"]["reason"].text();
    pod.waiting_message = state["waiting"]["message"].text();
    pod.started = ended.present() || state["running"].present();
  }
}

Pod read_pod(const Field& root) {
  Pod pod;
  pod.meta = decode_meta(root["metadata"]);
  pod.node = root["spec"]["nodeName"].text();
  for (const Field& gate : root["spec"]["schedulingGates"].items()) {
    pod.gates.push_back(gate["name"].text());
  }
  const Field status = root["status"];
  pod.phase = status["phase"].text("Pending");
  pod.reason = status["reason"].text();
  pod.message = status["message"].text();
  for (const Field& ip : status["podIPs"].items()) pod.ips.push_back(ip["ip"].text());
  for (const Field& item : status["conditions"].items()) {
    pod.conditions.push_back({item["type"].text(), item["status"].text(), item["reason"].text(),
                              item["message"].text(), item["lastTransitionTime"].time()});
    if (pod.conditions.back().type == "Ready") pod.ready = pod.conditions.back().status == "True";
  }
  decode_trainer(status, pod);
  return pod;
}

Node read_node(const Field& root) {
  Node node;
  node.meta = decode_meta(root["metadata"]);
  node.schedulable = !root["spec"]["unschedulable"].boolean();
  for (const Field& taint : root["spec"]["taints"].items()) {
    node.taints.push_back({taint["key"].text(), taint["value"].text(), taint["effect"].text()});
  }
  node.allocatable = root["status"]["allocatable"].text_map();
  for (const Field& item : root["status"]["conditions"].items()) {
    if (item["type"].text() != "Ready") continue;
    node.ready = item["status"].text() == "True";
    if (!node.ready) node.not_ready_since = item["lastTransitionTime"].time();
  }
  return node;
}

PodGroup read_pod_group(const Field& root) {
  PodGroup group;
  group.meta = decode_meta(root["metadata"]);
  group.phase = root["status"]["phase"].text();
  for (const Field& item : root["status"]["conditions"].items()) {
    if (item["type"].text() != "Unschedulable" || item["status"].text() != "True") continue;
    group.why = item["message"].text();
  }
  return group;
}

}  // namespace

Result<Pod> decode_pod(std::string_view text) {
  return decode<Pod>("Pod", text, read_pod, is_read_of_pod);
}

Result<Service> decode_service(std::string_view text) {
  return decode<Service>(
      "Service", text, [](const Field& root) { return Service{decode_meta(root["metadata"])}; },
      is_read_of_any);
}

Result<ConfigMap> decode_config_map(std::string_view text) {
  return decode<ConfigMap>("ConfigMap", text, [](const Field& root) {
    return ConfigMap{decode_meta(root["metadata"]), root["data"].text_map()};
  });
}

Result<Node> decode_node(std::string_view text) {
  return decode<Node>("Node", text, read_node);
}

Result<PodGroup> decode_pod_group(std::string_view text) {
  return decode<PodGroup>("PodGroup", text, read_pod_group);
}

Result<ObjectMeta> decode_object_meta(std::string_view text) {
  return decode<ObjectMeta>(
      "object", text, [](const Field& root) { return decode_meta(root["metadata"]); },
      is_read_of_any);
}

Result<PipelineJob> decode_job(std::string_view text) {
  return decode<PipelineJob>("PipelineJob", text, read_job);
}

Result<ListPage> decode_list(std::string_view text) {
  const std::string_view meta = json_member(text, "metadata");
  const std::string_view items = json_member(text, "items");
  const auto elements = json_elements(items.empty() || items == "null" ? "[]" : items);
  if (!json_members(text) || !elements) return Error{Code::kInvalid, "list: not JSON"};
  ListPage page;
  page.resource_version = json_characters(json_member(meta, "resourceVersion"));
  page.continue_token = json_characters(json_member(meta, "continue"));
  for (const std::string_view item : *elements) page.items.push_back(reduced(item, is_read));
  return page;
}

Result<WatchEvent> decode_watch_event(std::string_view line) {
  if (!json_members(line)) return Error{Code::kInvalid, "watch event: not JSON"};
  const std::string_view object = json_member(line, "object");
  WatchEvent event;
  event.type = json_characters(json_member(line, "type"));
  if (event.type == "ERROR") {
    return decode<WatchEvent>("watch event", object, [&event](const Field& status) {
      event.error_code = status["code"].integer();
      event.error_reason = status["reason"].text();
      event.error_message = status["message"].text();
      return event;
    });
  }
  event.resource_version =
      json_characters(json_member(json_member(object, "metadata"), "resourceVersion"));
  if (event.type != "BOOKMARK") event.object = object;
  return event;
}

}  // namespace weir::api
