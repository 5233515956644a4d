// SPDX-License-Identifier: Apache-2.0
// Structs -> JSON bodies for the API server. Pure; keys sorted, so that equal input gives equal
// bytes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "operator/api/objects.h"
#include "operator/api/pipeline_job.h"
#include "worker/base/result.h"

namespace weir::api {

// Labels of every object of a job; the selector of our watches is weir.dev/job-name.
std::map<std::string, std::string> job_labels(const PipelineJob& job);

// What a worker pod needs besides the job.
struct PodInput {
  std::string group;       // its WorkerGroup
  int index_in_group = 0;  // i of <job>-<group>-<i>
  int worker_index = 0;    // over all groups, sorted by name; 0 = coordinator
  int attempt = 0;
  int workers = 1;          // required count
  std::string coordinator;  // "<job>-<group>-<0>.<job>:7070"
  std::string control_url;
  std::vector<std::string> avoided_nodes;
  int generation = 0;   // status.podGeneration when it is made
  bool queued = false;  // a queue lets the pods in: that may take for ever
  // Of the gang provider, and Pinned's gate.
  std::map<std::string, std::string> labels, annotations;
  std::string scheduler_name;  // "" = as the user wrote
  std::vector<std::string> gates;
};
struct PodManifest {
  std::string name, json;
  std::vector<std::string> env_conflicts;  // names that the user set and that ours gave way to
  bool checkpoint_on_volume = true;        // checkpoint.path, if set, is in a mounted volume
};
// Annotation of every pod: PodInput::generation.
constexpr auto kPodGeneration = "weir.dev/pod-generation";
// Annotation of every pod: template_hash of the job when it was made.
constexpr auto kTemplateHash = "weir.dev/template-hash";
// Merges as crds/README.md "Pods" says. Errors: kNotFound: the template lists containers, but none
// is trainer; kInvalid names the field of the template that cannot be merged.
Result<PodManifest> encode_pod(const PipelineJob& job, const PodInput& input);
// Digest (16 hex digits) of what the user wrote for the pods; not of what the operator adds.
std::string template_hash(const PipelineJob& job);

// Merge patch of a gated pod: its node, and the gates that are left.
std::string encode_open_gate(const std::string& resource_version, const std::string& hostname,
                             const std::vector<std::string>& gates_left);

std::string pod_name(const std::string& job, const std::string& group, int index, int attempt);
std::string encode_service(const PipelineJob& job);  // headless <job>
std::string encode_control_config_map(const PipelineJob& job, const std::string& control_url,
                                      const std::string& ca_bundle_pem);
std::string encode_plan_config_map(const PipelineJob& job, std::int64_t revision,
                                   const std::string& plan_json);  // immutable

// Bodies of server-side apply on /status: all fields of that owner, within the CRD's limits
// (fit.h), for the job of that uid alone. guarded: carries metadata.resourceVersion, so that a
// paused former leader cannot win.
std::string encode_status(const PipelineJob& job, const JobStatus& status, bool guarded = false);
std::string encode_report_status(const PipelineJob& job, const ReportStatus& status);

struct Event {
  std::string type, reason, note, action;  // Normal/Warning, PlanRetuned, text
};
// events.k8s.io/v1; name must be unique.
std::string encode_event(const PipelineJob& job, const Event& event, const std::string& name,
                         const std::string& instance, Time now);

}  // namespace weir::api
