// SPDX-License-Identifier: Apache-2.0
// What the parts of one reconcile share: the input, the status under construction, the actions so
// far. Private to this room.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "operator/api/validate.h"
#include "operator/controller/reconcile/actions.h"
#include "operator/controller/reconcile/snapshot.h"
#include "operator/estimator/estimates.h"

namespace weir::reconcile {

// A place for one worker: pods of the same slot differ in their attempt.
struct Slot {
  std::string group;
  int index_in_group = 0;
  int worker_index = 0;
  std::shared_ptr<const api::Pod> pod;  // the newest attempt, null = none
  int next_attempt = 0;                 // 1 + highest existing
};

// Why a slot needs a new pod.
struct Failure {
  const Slot* slot = nullptr;
  bool in_plan = false;  // its pod runs a rank of the current plan
  std::optional<int> exit_code;
  bool disruption = false;  // deleted, drained, preempted: does not use the budget
  std::string text;         // "pod x-gpu-1: exit code 137 (OOMKilled)"
};

struct Pass {
  const Snapshot& snapshot;
  const estimator::Estimates& estimates;
  const Tunables& tunables;
  api::JobStatus status;
  std::vector<Action> actions;
  std::optional<Time> wake;  // earliest deadline
  bool guarded = false;      // the status patch carries resourceVersion
  AdaptationState adaptation;
  std::vector<Slot> slots;
  std::vector<Failure> failures;           // of the newest pods
  const schedule::Plan* newest = nullptr;  // plan of status.plan.revision, null = none yet
  bool refused = false;                    // the newest was refused: its parent goes on
  std::optional<api::Refusal> refusal;     // set: Accepted=False
  std::string accepted_note;
  const schedule::Plan* plan = nullptr;  // in force or being applied, null = none

  const api::PipelineJob& job() const { return *snapshot.job; }
  const api::JobSpec& spec() const { return snapshot.job->spec; }
  Time now() const { return snapshot.now; }

  void act(Action action) { actions.push_back(std::move(action)); }
  void event(const std::string& type, const std::string& reason, const std::string& note,
             const std::string& action) {
    act(EmitEvent{{type, reason, note, action}});
  }
  void wake_at(Time time) { wake = wake ? std::min(*wake, time) : time; }
  void set(const std::string& type, const std::string& value, const std::string& reason,
           const std::string& message) {
    api::set_condition(status.conditions,
                       {type, value, reason, message, job().meta.generation, now()});
  }
  bool is(const std::string& type, const std::string& value) const {
    const auto* condition = api::find_condition(status.conditions, type);
    return condition != nullptr && condition->status == value;
  }
};

// The parts, in the order in which reconcile calls them. A bool result: true = this pass ends here
// (record, then act).
void find_slots(Pass& pass);
bool handle_end(Pass& pass);       // coordinator finished, or the job must fail
bool handle_failures(Pass& pass);  // records restarts
void create_pods(Pass& pass);
void refuse_job(Pass& pass, const std::string& reason, const std::string& message);
bool members_complete(const Pass& pass);  // every slot's live pod is registered
void make_plans(Pass& pass);              // initial, restart, edited spec
void adapt(Pass& pass);                   // tick: tuner, outcome check
void view_conditions(Pass& pass);
void view_progress(Pass& pass);
void fail_job(Pass& pass, const std::string& reason, const std::string& message);

schedule::Family family_of(const std::string& type);  // of schedule.type

// Shared small things.
bool pod_ended(const api::Pod& pod);
int micro_batches_of(const api::JobSpec& spec, int micro_batch_size);
std::optional<planner::Model> model_of(const Pass& pass, std::string& why_not);
planner::Cluster cluster_of(const Pass& pass);
// Puts a plan into status and emits CreatePlan; revision, parent, uid are filled in here.
void adopt_plan(Pass& pass, schedule::Plan plan, schedule::Trigger trigger, double predicted_gain);
std::string percent(double fraction);                  // "11.2"
std::string number(double value, int digits);          // "1.42"
std::string bits_per_second(double bytes_per_second);  // "9.1 Gbit/s"

}  // namespace weir::reconcile
