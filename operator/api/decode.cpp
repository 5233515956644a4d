// SPDX-License-Identifier: Apache-2.0
// Pods, Services, ConfigMaps, Nodes, lists and watch lines. Jobs: decode_job.cpp.
#include "operator/api/decode.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "operator/api/decode_parts.h"
#include "operator/api/json_read.h"

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

// Runs read(Field) on the parsed text and answers its value, or the first problem it met.
template <class T, class Read>
Result<T> decode(const char* kind, std::string_view text, Read&& read) {
  const auto root = parse_json(text);
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

}  // namespace

Result<Pod> decode_pod(std::string_view text) {
  return decode<Pod>("Pod", text, read_pod);
}

Result<Service> decode_service(std::string_view text) {
  return decode<Service>("Service", text,
                         [](const Field& root) { return Service{decode_meta(root["metadata"])}; });
}

Result<ConfigMap> decode_config_map(std::string_view text) {
  return decode<ConfigMap>("ConfigMap", text, [](const Field& root) {
    return ConfigMap{decode_meta(root["metadata"]), root["data"].text_map()};
  });
}

Result<Node> decode_node(std::string_view text) {
  return decode<Node>("Node", text, read_node);
}

Result<ObjectMeta> decode_object_meta(std::string_view text) {
  return decode<ObjectMeta>("object", text,
                            [](const Field& root) { return decode_meta(root["metadata"]); });
}

Result<PipelineJob> decode_job(std::string_view text) {
  return decode<PipelineJob>("PipelineJob", text, read_job);
}

Result<ListPage> decode_list(std::string_view text) {
  return decode<ListPage>("list", text, [](const Field& root) {
    ListPage page;
    page.resource_version = root["metadata"]["resourceVersion"].text();
    page.continue_token = root["metadata"]["continue"].text();
    for (const Field& item : root["items"].items()) page.items.push_back(item.json_text());
    return page;
  });
}

Result<WatchEvent> decode_watch_event(std::string_view line) {
  return decode<WatchEvent>("watch event", line, [](const Field& root) {
    WatchEvent event;
    event.type = root["type"].text();
    const Field object = root["object"];
    if (event.type == "ERROR") {
      event.error_code = object["code"].integer();
      event.error_reason = object["reason"].text();
      event.error_message = object["message"].text();
      return event;
    }
    event.resource_version = object["metadata"]["resourceVersion"].text();
    if (event.type != "BOOKMARK") event.object = object.json_text();
    return event;
  });
}

}  // namespace weir::api
