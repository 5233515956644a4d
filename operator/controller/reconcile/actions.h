// SPDX-License-Identifier: Apache-2.0
// Output of reconcile. The executor carries actions out in this order, one request each,
// idempotent; what of them goes on after a refusal: refusals.h.
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
  bool guarded = false;
};  // guarded: with resourceVersion (plan, restarts)
struct PatchReport {
  api::ReportStatus status;
};
struct DryRunPods {
  std::string hash;
};  // first pod of each group; fills Snapshot.template_check
struct ReadProfile {};  // GET of the profile ConfigMap; fills Snapshot.profile
struct ReadPodWarning {
  std::string pod, uid;
};  // its newest event; fills Snapshot.pod_warnings
struct ConfirmPods {
};  // is the cache up to date with the job's pods? fills Snapshot.pods_confirmed
struct CreateService {};
struct ApplyControlConfigMap {};
struct ApplyGangObject {
  std::string object;  // JSON, a server-side apply body
};
struct DeleteGangObject {};
struct CreatePods {
  std::vector<api::PodInput> pods;
};  // slow start: 1, 2, 4, ... 64
struct ClosePodGroup {
  std::string pod, patch;
};  // this pod tells Kueue that its group is over
// A gated pod gets its node, as nodeSelector kubernetes.io/hostname: the only tightening that a
// merge patch can add without repeating the user's affinity.
struct OpenGate {
  std::string pod, resource_version, hostname;
  std::vector<std::string> gates_left;
};
struct DeletePod {
  std::string name, uid, why;
};
struct CreatePlan {
  schedule::Plan plan;
};  // ConfigMap first; status is recorded by the same pass
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
