// SPDX-License-Identifier: Apache-2.0
// Structs -> JSON bodies for the API server. Pure. Keys are sorted, so that equal input gives equal
// bytes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/names.h"
#include "operator/api/objects.h"
#include "operator/api/pipeline_job.h"
#include "worker/base/result.h"

namespace weir::api {

// Labels of every object of a job. Watches select objects by weir.dev/job-name.
std::map<std::string, std::string> job_labels(const PipelineJob& job);

// Inputs of the manifest of one worker pod besides the job.
struct PodInput {
  std::string group;  // name of its WorkerGroup
  // i in the pod's name <job>-<group>-<i>; kFirstSpare + j of spare <job>-<group>-s<j>.
  int index_in_group = 0;
  int worker_index = 0;  // counted over all groups, sorted by name; 0 = coordinator
  int attempt = 0;
  int workers = 1;          // workers that the job needs, without spares
  std::string coordinator;  // "<job>-<group>-<0>.<job>:7070"
  std::string control_url;
  std::vector<std::string> avoided_nodes;
  std::vector<std::string> last_nodes;  // where it goes if no other node takes it
  int generation = 0;                   // status.podGeneration when the pod is made
  // The kubelet restarts the trainer in its pod after any other exit code. Empty: after none.
  std::vector<int> final_exit_codes;
  bool queued = false;  // a queue admits the pods, which has no time limit
  // The gang provider adds these; placement.mode Pinned adds a gate.
  std::map<std::string, std::string> labels, annotations;
  std::string scheduler_name;  // "" = the one in the user's template or spec
  std::vector<std::string> gates;
};
struct PodManifest {
  std::string name, json;
  std::vector<std::string> env_conflicts;  // variables for which the user's value replaces ours
  bool checkpoint_on_volume = true;        // checkpoint.path, if set, is in a mounted volume
};
// Merges template, group and worker as crds/README.md "Pods" says. kNotFound: the template lists
// containers, but none is named trainer. kInvalid names the field that cannot be merged.
Result<PodManifest> encode_pod(const PipelineJob& job, const PodInput& input);
// Digest (16 hex digits) of what the user wrote for the pods; not of what the operator adds.
std::string template_hash(const PipelineJob& job);

// Merge patch that binds a gated pod to a node and leaves the other gates.
std::string encode_open_gate(const std::string& resource_version, const std::string& hostname,
                             const std::vector<std::string>& gates_left);

std::string pod_name(const std::string& job, const std::string& group, int index, int attempt);
std::string encode_service(const PipelineJob& job);  // headless <job>
std::string encode_control_config_map(const PipelineJob& job, const std::string& control_url,
                                      const std::string& ca_bundle_pem);
std::string encode_plan_config_map(const PipelineJob& job, std::int64_t revision,
                                   const std::string& plan_json);  // immutable
// A dump of the flight recorders: why it was made, in one line, and when.
struct FlightNote {
  std::string why;
  Time time{};
};
// A part of the records of some steps, for server-side apply.
struct TracePart {
  std::string id;  // of the user's request
  int part = 0, parts = 1;
  std::string octets;
  std::optional<FlightNote> flight = {};  // they are a dump, not what a user has asked for
  std::string config_map(const std::string& job) const {
    return flight ? flight_config_map(job) : trace_config_map(job, part);
  }
};
std::string encode_trace_config_map(const PipelineJob& job, const TracePart& trace);

// Bodies of server-side apply on /status: all fields of one field owner, within the CRD's limits
// (fit.h). The uid protects a new job of the same name. guarded: the body has
// metadata.resourceVersion, so that a former leader that was paused cannot overwrite a newer
// status.
std::string encode_status(const PipelineJob& job, const JobStatus& status, bool guarded = false);
std::string encode_report_status(const PipelineJob& job, const ReportStatus& status);

struct Event {
  std::string type, reason, note, action;  // Normal/Warning, PlanRetuned, text
};
// events.k8s.io/v1; name must be unique.
std::string encode_event(const PipelineJob& job, const Event& event, const std::string& name,
                         const std::string& instance, Time now);

}  // namespace weir::api
