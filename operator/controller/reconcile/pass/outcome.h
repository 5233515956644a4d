// SPDX-License-Identifier: Apache-2.0
// Output of reconcile. The executor carries out its parts in the order of the fields of Outcome.
// Each request may be repeated. refusals.h says what is left out after a refusal.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "operator/api/encode.h"
#include "operator/api/pipeline_job.h"
#include "operator/controller/reconcile/pass/snapshot.h"
#include "worker/schedule/plan.h"

namespace weir::reconcile {

// The first four fetch an answer for the next pass.
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
struct DeleteJob {};
struct PatchStatus {
  api::JobStatus status;
  bool guarded = false;  // with resourceVersion, because plan or restarts change
};
struct PatchReport {
  api::ReportStatus status;
};

using Request = std::variant<DryRunPods, ReadProfile, ReadPodWarning, ConfirmPods, CreateService,
                             ApplyControlConfigMap, ApplyGangObject, DeleteGangObject, CreatePods,
                             ClosePodGroup, OpenGate, DeletePod, CreatePlan, DeletePlan, DeleteJob,
                             PatchStatus, PatchReport>;

struct Outcome {
  std::vector<Request> requests;      // no patch; in the order in which the parts asked
  std::optional<PatchStatus> status;  // names plans that the requests have created
  std::vector<api::Event> events;
  std::optional<PatchReport> report;  // changes the resourceVersion that a guarded patch needs
  std::optional<AdaptationState> memory;
  std::optional<gate::Observation> judged;  // a prediction and what came of it; with `memory`
  std::optional<std::chrono::milliseconds> requeue;  // time until the next pass

  bool empty() const {
    return requests.empty() && !status && events.empty() && !report && !memory && !requeue;
  }
};

}  // namespace weir::reconcile
