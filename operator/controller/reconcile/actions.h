// SPDX-License-Identifier: Apache-2.0
// Output of reconcile. The executor carries out the actions in this order. Each is one request that
// may be repeated. refusals.h says which actions are left out after a refusal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "operator/api/encode.h"
#include "operator/api/pipeline_job.h"
#include "operator/controller/reconcile/snapshot.h"
#include "worker/schedule/plan.h"

namespace weir::reconcile {

struct PatchStatus {
  api::JobStatus status;
  bool guarded = false;  // with resourceVersion, because plan or restarts change
};
struct PatchReport {
  api::ReportStatus status;
};
// The next four fetch an answer for the next pass.
struct DryRunPods {  // creates the first pod of each group as a dry run -> Snapshot.template_check
  std::string hash;
};
struct ReadProfile {};   // reads the profile's ConfigMap -> Snapshot.profile
struct ReadPodWarning {  // reads the newest event of a pod -> Snapshot.pod_warnings
  std::string pod, uid;
};
struct ConfirmPods {};  // checks that the cache has all pods of the job -> Snapshot.pods_confirmed
struct CreateService {};
struct ApplyControlConfigMap {};
struct ApplyGangObject {
  std::string object;  // JSON, a server-side apply body
};
struct DeleteGangObject {};
struct CreatePods {
  std::vector<api::PodInput> pods;  // made in batches of 1, 2, 4, ... 64
};
struct ClosePodGroup {  // annotates a pod, which ends its pod group of Kueue
  std::string pod, patch;
};
// Gives a gated pod its node as nodeSelector kubernetes.io/hostname. A merge patch cannot add
// anything else without repeating the user's affinity.
struct OpenGate {
  std::string pod, resource_version, hostname;
  std::vector<std::string> gates_left;
};
struct DeletePod {
  std::string name, uid, why;
};
struct CreatePlan {  // writes the plan's ConfigMap; the status of the same pass names it
  schedule::Plan plan;
};
struct DeletePlan {
  std::int64_t revision = 0;
};
struct EmitEvent {
  api::Event event;
};
struct DeleteJob {};
struct KeepAdaptationState {
  AdaptationState state;
};
struct RequeueAfter {
  std::chrono::milliseconds delay{0};
};

using Action =
    std::variant<PatchStatus, PatchReport, DryRunPods, ReadProfile, ReadPodWarning, ConfirmPods,
                 CreateService, ApplyControlConfigMap, ApplyGangObject, DeleteGangObject,
                 CreatePods, ClosePodGroup, OpenGate, DeletePod, CreatePlan, DeletePlan, EmitEvent,
                 DeleteJob, KeepAdaptationState, RequeueAfter>;

}  // namespace weir::reconcile
