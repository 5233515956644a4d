// SPDX-License-Identifier: Apache-2.0
// Names that the operator shares with users, workers and itself: labels, annotations, field
// managers, and names of a job's objects (crds/README.md).
#pragma once

#include <cstdint>
#include <string>

namespace weir::api {

inline constexpr auto kApiVersion = "weir.dev/v1alpha1";
inline constexpr auto kManagedByUs = "weir.dev/operator";  // spec.managedBy; reporter of events
inline constexpr auto kAudience = "weir.dev/control";      // of the pods' tokens

// Labels. Every object of a job has the first two, a pod has all.
inline constexpr auto kJobName = "weir.dev/job-name";
inline constexpr auto kJobUid = "weir.dev/job-uid";
inline constexpr auto kWorkerGroup = "weir.dev/worker-group";
inline constexpr auto kWorkerIndex = "weir.dev/worker-index";
inline constexpr auto kAttempt = "weir.dev/attempt";

// Annotations of every pod: PodInput::generation, and template_hash of the job when the pod was
// made.
inline constexpr auto kPodGeneration = "weir.dev/pod-generation";
inline constexpr auto kTemplateHash = "weir.dev/template-hash";
// Annotations of a job, which users set.
inline constexpr auto kFreezePlan = "weir.dev/freeze-plan";
inline constexpr auto kReplan = "weir.dev/replan";
// Steps that a user wants to see (worker/protocol/trace_request.h), and on ConfigMaps with a part
// of them: the id of the request, and the part as "1/2".
inline constexpr auto kTrace = "weir.dev/trace";
inline constexpr auto kTracePart = "weir.dev/trace-part";
// Label of ConfigMaps that tell of a job. They lack kJobName, by which the operator watches.
inline constexpr auto kReportOf = "weir.dev/report-of";
inline constexpr auto kTraceKey = "records";  // in ConfigMaps of traces, binary
inline constexpr auto kFlightWhyKey = "why", kFlightTimeKey = "time";  // in that of a dump

inline constexpr auto kPlanGate = "weir.dev/plan";  // scheduling gate of pinned pods

// Field managers of server-side apply: of status and objects, and of measurements in status.
inline constexpr auto kOwner = "weir-operator";
inline constexpr auto kReportOwner = "weir-operator-report";

inline std::string control_config_map(const std::string& job) {
  return job + "-control";
}
inline std::string plan_config_maps(const std::string& job) {  // what their names begin with
  return job + "-plan-";
}
inline std::string plan_config_map(const std::string& job, std::int64_t revision) {
  return plan_config_maps(job) + std::to_string(revision);
}

inline std::string trace_config_map(const std::string& job, int part) {  // from 0
  return job + "-trace-" + std::to_string(part);
}
inline std::string flight_config_map(const std::string& job) {
  return job + "-flight";
}

}  // namespace weir::api
