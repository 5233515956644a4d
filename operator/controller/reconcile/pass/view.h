// SPDX-License-Identifier: Apache-2.0
// The input of a pass. Private to the rooms of reconcile.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include "operator/controller/reconcile/pass/failure.h"
#include "operator/controller/reconcile/pass/snapshot.h"
#include "operator/estimator/estimates.h"
#include "operator/gang/provider.h"

namespace weir::reconcile {

// A new leader waits that long before silence counts, because the coordinator must first send
// members and report again.
constexpr std::chrono::seconds kNewLeaderWaits{60};

// All that is known when a pass decides. reconcile fills it in; the parts only read it.
struct View {
  const Snapshot& snapshot;
  const estimator::Estimates& estimates;
  const Tunables& tunables;
  gang::Provider provider = gang::Provider::kNone;
  std::vector<Slot> slots;
  std::vector<Failure> failures;           // of the newest pods
  const schedule::Plan* newest = nullptr;  // plan of status.plan.revision; null = none yet
  bool refused = false;                    // the workers refused `newest`; `applied` stays in force
  const schedule::Plan* plan = nullptr;    // in force or being applied; null = none
  const schedule::Plan* applied = nullptr;  // of status.plan.appliedRevision; null = unknown
  // Numbers of replicas.
  int wanted_replicas = 1;   // that the accepted spec demands
  int needed_replicas = 1;   // training stops if a worker of one of these replicas is missing
  int planned_replicas = 1;  // whose members a plan that is made now may use
  bool plan_lives = false;   // all pods of `plan` exist and work

  const api::PipelineJob& job() const { return *snapshot.job; }
  const api::JobSpec& spec() const { return snapshot.job->spec; }
  Time now() const { return snapshot.now; }
};

// Interval of writes that only inform. If there are many jobs, it grows, so that all jobs together
// write at most `per_second` times a second.
inline std::chrono::seconds stretched(const View& view, std::chrono::seconds least,
                                      int per_second) {
  return std::max(least, std::chrono::seconds(view.snapshot.jobs / per_second));
}

}  // namespace weir::reconcile
