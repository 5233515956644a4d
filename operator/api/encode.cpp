// SPDX-License-Identifier: Apache-2.0
// Service, ConfigMaps, Events. Pods: pod_manifest.cpp; status: status_json.cpp.
#include "operator/api/encode.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "operator/api/encode_parts.h"
#include "operator/api/fit.h"
#include "operator/api/json_write.h"
#include "operator/api/names.h"
#include "worker/base/digest.h"
#include "worker/base/time_text.h"
#include "worker/base/worker_index.h"

namespace weir::api {

using nlohmann::json;

namespace {

constexpr std::size_t kMaxNote = 1024;     // events.k8s.io/v1
constexpr std::size_t kMaxInstance = 128;  // reportingInstance

}  // namespace

std::string pod_name(const std::string& job, const std::string& group, int index, int attempt) {
  const std::string place =
      is_spare(index) ? "s" + std::to_string(index - kFirstSpare) : std::to_string(index);
  const std::string name = job + "-" + group + "-" + place;
  return attempt == 0 ? name : name + "-" + std::to_string(attempt);
}

std::map<std::string, std::string> job_labels(const PipelineJob& job) {
  return {{"app.kubernetes.io/name", "pipelinejob"},
          {"app.kubernetes.io/instance", job.meta.name},
          {"app.kubernetes.io/part-of", job.meta.name},
          {"app.kubernetes.io/managed-by", kOwner},
          {kJobName, job.meta.name},
          {kJobUid, job.meta.uid}};
}

json owned_metadata(const PipelineJob& job, const std::string& name) {
  return {{"name", name},
          {"namespace", job.meta.namespace_name},
          {"labels", job_labels(job)},
          {"ownerReferences",
           {{{"apiVersion", kApiVersion},
             {"kind", "PipelineJob"},
             {"name", job.meta.name},
             {"uid", job.meta.uid},
             {"controller", true},
             {"blockOwnerDeletion", true}}}}};
}

std::string encode_service(const PipelineJob& job) {
  json ports = json::array();
  for (const auto& [name, port] : kWorkerPorts) {
    ports.push_back({{"name", name}, {"port", port}, {"protocol", "TCP"}});
  }
  return dump_json({{"apiVersion", "v1"},
                    {"kind", "Service"},
                    {"metadata", owned_metadata(job, job.meta.name)},
                    {"spec",
                     {{"clusterIP", "None"},
                      {"publishNotReadyAddresses", true},
                      {"selector", {{kJobName, job.meta.name}, {kJobUid, job.meta.uid}}},
                      {"ports", std::move(ports)}}}});
}

std::string encode_open_gate(const std::string& resource_version, const std::string& hostname,
                             const std::vector<std::string>& gates_left) {
  json gates = json::array();
  for (const std::string& gate : gates_left) gates.push_back({{"name", gate}});
  return dump_json({{"metadata", {{"resourceVersion", resource_version}}},
                    {"spec",
                     {{"nodeSelector", {{"kubernetes.io/hostname", hostname}}},
                      {"schedulingGates", gates.empty() ? json(nullptr) : std::move(gates)}}}});
}

std::string encode_control_config_map(const PipelineJob& job, const std::string& control_url,
                                      const std::string& ca_bundle_pem) {
  return dump_json({{"apiVersion", "v1"},
                    {"kind", "ConfigMap"},
                    {"metadata", owned_metadata(job, control_config_map(job.meta.name))},
                    {"data", {{"url", control_url}, {"ca.crt", ca_bundle_pem}}}});
}

std::string encode_plan_config_map(const PipelineJob& job, std::int64_t revision,
                                   const std::string& plan_json) {
  return dump_json({{"apiVersion", "v1"},
                    {"kind", "ConfigMap"},
                    {"metadata", owned_metadata(job, plan_config_map(job.meta.name, revision))},
                    {"immutable", true},
                    {"data", {{"plan.json", plan_json}}}});
}

std::string encode_trace_config_map(const PipelineJob& job, const TracePart& trace) {
  json metadata = owned_metadata(job, trace.config_map(job.meta.name));
  metadata["labels"] = {{kReportOf, job.meta.name}};
  metadata["annotations"] = {
      {kTrace, trace.id},
      {kTracePart, std::to_string(trace.part + 1) + "/" + std::to_string(trace.parts)}};
  json map = {{"apiVersion", "v1"},
              {"kind", "ConfigMap"},
              {"metadata", std::move(metadata)},
              {"binaryData", {{kTraceKey, to_base64(trace.octets)}}}};
  if (trace.flight) {
    map["data"] = {{kFlightWhyKey, trace.flight->why},
                   {kFlightTimeKey, to_rfc3339(trace.flight->time)}};
  }
  return dump_json(std::move(map));
}

std::string encode_event(const PipelineJob& job, const Event& event, const std::string& name,
                         const std::string& instance, Time now) {
  return dump_json({{"apiVersion", "events.k8s.io/v1"},
                    {"kind", "Event"},
                    {"metadata", {{"name", name}, {"namespace", job.meta.namespace_name}}},
                    {"eventTime", to_rfc3339_micro(now)},
                    {"reportingController", kManagedByUs},
                    {"reportingInstance", cut(instance, kMaxInstance)},
                    {"type", event.type},
                    {"reason", event.reason},
                    {"action", event.action.empty() ? event.reason : event.action},
                    {"note", cut(event.note, kMaxNote)},
                    {"regarding",
                     {{"apiVersion", kApiVersion},
                      {"kind", "PipelineJob"},
                      {"name", job.meta.name},
                      {"namespace", job.meta.namespace_name},
                      {"uid", job.meta.uid},
                      {"resourceVersion", job.meta.resource_version}}}});
}

}  // namespace weir::api
