// SPDX-License-Identifier: Apache-2.0
// Pods, Services, ConfigMaps, Nodes, PodGroups, lists and watch lines. Jobs: decode_job.cpp.
#include "operator/api/decode.h"

#include <algorithm>
#include <cstdio>

#include "operator/api/decode_parts.h"
#include "operator/api/json_read.h"
#include "operator/api/plain_line.h"

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
  JsonDocument document;
  if (const auto parsed = document.parse(text); !parsed) return parsed.error().with(kind);
  T value = read(document.root());
  if (!document.problem().empty()) return invalid(std::string(kind) + ": " + document.problem());
  return value;
}

ContainerEnd decode_end(const std::string& container, const Field& ended) {
  return {container, ended["exitCode"].integer(), ended["reason"].text(),
          plain_line(ended["message"].text()), ended["finishedAt"].time()};
}

// The API server drops the rules where it does not know them.
void decode_restart_rules(const Field& spec, Pod& pod) {
  for (const Field& container : spec["containers"].items()) {
    if (container["name"].text() != "trainer") continue;
    for (const Field& rule : container["restartPolicyRules"].items()) {
      const Field codes = rule["exitCodes"];
      if (rule["action"].text() != "Restart" || codes["operator"].text() != "NotIn") continue;
      pod.final_exit_codes = codes["values"].integers();
    }
  }
}

void decode_trainer(const Field& status, Pod& pod) {
  for (const Field& container : status["containerStatuses"].items()) {
    pod.containers_seen = true;
    if (container["name"].text() != "trainer") continue;
    const Field state = container["state"];
    const Field ended = state["terminated"];
    if (ended.present()) {
      pod.exit_code = ended["exitCode"].integer();
      pod.termination_reason = ended["reason"].text();
      pod.termination_message = plain_line(ended["message"].text());
      pod.ended = ended["finishedAt"].time();
    }
    pod.container_restarts = container["restartCount"].integer();
    const Field before = container["lastState"]["terminated"];
    if (before.present()) pod.last_end = decode_end("trainer", before);
    pod.waiting_reason = state["waiting"]["reason"].text();
    pod.waiting_message = state["waiting"]["message"].text();
    pod.started = ended.present() || state["running"].present();
  }
}

void decode_init_containers(const Field& status, Pod& pod) {
  for (const Field& container : status["initContainerStatuses"].items()) {
    pod.containers_seen = true;
    const std::string name = container["name"].text();
    const Field ended = container["state"]["terminated"];
    if (ended.present() && ended["exitCode"].integer() != 0 && !pod.failed_init) {
      pod.failed_init = decode_end(name, ended);
    }
    const Field waiting = container["state"]["waiting"];
    const std::string reason = waiting["reason"].text();
    if (pod.waiting_reason != "PodInitializing" || reason.empty() || reason == "PodInitializing")
      continue;
    pod.waiting_reason = reason;
    pod.waiting_message = "init container " + name + ": " + waiting["message"].text();
  }
}

Pod read_pod(const Field& root) {
  Pod pod;
  pod.meta = decode_meta(root["metadata"]);
  pod.node = root["spec"]["nodeName"].text();
  for (const Field& gate : root["spec"]["schedulingGates"].items()) {
    pod.gates.push_back(gate["name"].text());
  }
  decode_restart_rules(root["spec"], pod);
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
  decode_init_containers(status, pod);
  return pod;
}

// 35 for the version "v1.35.4-eks-1"; 0 = it has not this form.
int minor_of(const std::string& version) {
  int minor = 0;
  const bool known = std::sscanf(version.c_str(), "v1.%d.", &minor) == 1;  // NOLINT(cert-err34-c)
  return known ? minor : 0;
}

Node read_node(const Field& root) {
  Node node;
  node.meta = decode_meta(root["metadata"]);
  node.schedulable = !root["spec"]["unschedulable"].boolean();
  for (const Field& taint : root["spec"]["taints"].items()) {
    node.taints.push_back({taint["key"].text(), taint["value"].text(), taint["effect"].text()});
  }
  node.allocatable = root["status"]["allocatable"].text_map();
  node.kubelet_minor = minor_of(root["status"]["nodeInfo"]["kubeletVersion"].text());
  for (const Field& item : root["status"]["conditions"].items()) {
    if (item["type"].text() != "Ready") continue;
    node.ready = item["status"].text() == "True";
    (node.ready ? node.ready_since : node.not_ready_since) = item["lastTransitionTime"].time();
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

Result<PodGroup> decode_pod_group(std::string_view text) {
  return decode<PodGroup>("PodGroup", text, read_pod_group);
}

Result<ObjectMeta> decode_object_meta(std::string_view text) {
  return decode<ObjectMeta>("object", text,
                            [](const Field& root) { return decode_meta(root["metadata"]); });
}

Result<PipelineJob> decode_job(std::string_view text) {
  return decode<PipelineJob>("PipelineJob", text, read_job);
}

namespace {

// managedFields are half of an object's bytes, and a list is kept in memory as a whole.
Result<std::string> without_managed_fields(std::string_view object) {
  WEIR_TRY(const std::string_view meta, json_member(object, "metadata"));
  if (meta.empty()) return std::string(object);
  WEIR_TRY(const std::string_view fields, json_member(meta, "managedFields"));
  if (fields.empty()) return std::string(object);
  const auto at = static_cast<std::size_t>(fields.data() - object.data());
  std::string out(object.substr(0, at));
  return out.append("null").append(object.substr(at + fields.size()));
}

Status read_page(std::string_view text, ListPage& page) {
  std::string_view meta, items;
  WEIR_OK(each_member(text, [&](std::string_view key, std::string_view value) {
    if (key == "metadata") meta = value;
    if (key == "items" && value != "null") items = value;
  }));
  if (!meta.empty()) {
    WEIR_TRY(page, decode<ListPage>("metadata", meta, [](const Field& root) {
               return ListPage{root["resourceVersion"].text(), root["continue"].text(), {}};
             }));
  }
  if (items.empty()) return Unit{};
  WEIR_TRY(const auto elements, json_elements(items));
  for (const std::string_view item : elements) {
    WEIR_TRY(page.items.emplace_back(), without_managed_fields(item));
  }
  return Unit{};
}

Status read_event(std::string_view line, WatchEvent& event) {
  std::string_view object;
  WEIR_OK(each_member(line, [&](std::string_view key, std::string_view value) {
    if (key == "object") object = value;
    if (key == "type" && value.size() > 2) event.type = value.substr(1, value.size() - 2);
  }));
  if (event.type == "ERROR") {
    WEIR_TRY(event, decode<WatchEvent>("object", object, [](const Field& status) {
               return WatchEvent{"ERROR",
                                 "",
                                 "",
                                 status["code"].integer(),
                                 status["reason"].text(),
                                 status["message"].text()};
             }));
    return Unit{};
  }
  WEIR_TRY(const std::string_view meta, json_member(object, "metadata"));
  WEIR_TRY(const std::string_view version, json_member(meta, "resourceVersion"));
  if (version.size() > 2) event.resource_version = version.substr(1, version.size() - 2);
  if (event.type != "BOOKMARK") event.object = object;
  return Unit{};
}

}  // namespace

Result<ListPage> decode_list(std::string_view text) {
  ListPage page;
  if (const auto read = read_page(text, page); !read) return read.error().with("list");
  return page;
}

namespace {

struct ReportedEvent {
  std::string type, text;
  Time time{};  // whole seconds, as in the events of kubelets
};

ReportedEvent read_reported(const Field& event) {
  ReportedEvent reported;
  reported.type = event["type"].text();
  reported.text = event["reason"].text() + ": " + event["note"].text();
  for (const Field& time : {event["eventTime"], event["deprecatedLastTimestamp"],
                            event["series"]["lastObservedTime"]}) {
    reported.time = std::max(reported.time, time.time().value_or(Time{}));
  }
  reported.time = std::chrono::floor<std::chrono::seconds>(reported.time);
  return reported;
}

}  // namespace

Result<std::string> newest_warning(std::string_view list) {
  WEIR_TRY(const ListPage page, decode_list(list));
  ReportedEvent newest;
  for (const std::string& item : page.items) {
    WEIR_TRY(const ReportedEvent event, decode<ReportedEvent>("Event", item, read_reported));
    if (event.time > newest.time || (event.time == newest.time && event.type == "Warning"))
      newest = event;
  }
  return newest.type == "Warning" ? plain_line(newest.text) : "";
}

Result<WatchEvent> decode_watch_event(std::string_view line) {
  WatchEvent event;
  if (const auto read = read_event(line, event); !read) return read.error().with("watch event");
  return event;
}

}  // namespace weir::api
