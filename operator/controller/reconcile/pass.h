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
#include "operator/controller/reconcile/failure.h"
#include "operator/controller/reconcile/snapshot.h"
#include "operator/estimator/estimates.h"
#include "operator/gang/provider.h"

namespace weir::reconcile {

struct Pass {
  const Snapshot& snapshot;
  const estimator::Estimates& estimates;
  const Tunables& tunables;
  api::JobStatus status;
  std::vector<Action> actions;
  std::optional<Time> wake;  // earliest deadline
  bool guarded = false;      // the status patch carries resourceVersion
  AdaptationState adaptation;
  gang::Provider provider = gang::Provider::kNone;
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
  bool has_reason(const std::string& type, const std::string& reason) const {
    const auto* condition = api::find_condition(status.conditions, type);
    return condition != nullptr && condition->reason == reason;
  }
};

// The parts, in the order in which reconcile calls them. A bool result: true = this pass ends here
// (record, then act).
void find_slots(Pass& pass, int data_parallel);
bool handle_end(Pass& pass);        // the coordinator has finished, or the active deadline is over
bool handle_suspend(Pass& pass);    // true: no pods are wanted now
bool handle_release(Pass& pass);    // likewise, after a scheduling timeout
bool handle_failures(Pass& pass);   // finds them, records restarts
bool handle_deadlines(Pass& pass);  // startup, progress, scheduling; gives the budget back
void create_pods(Pass& pass);
void open_gates(Pass& pass);  // placement mode Pinned
std::vector<std::string> gates_of(const api::JobSpec& spec);
void delete_pods(Pass& pass);  // those that another attempt or a restart of scope Job replaces
void make_plans(Pass& pass);   // initial, restart, edited spec
void adapt(Pass& pass);        // tick: tuner, outcome check
void view_acceptance(Pass& pass);
void view_conditions(Pass& pass);
void view_network(Pass& pass);
void view_report(Pass& pass);

// Verdicts.
void refuse_job(Pass& pass, const std::string& reason, const std::string& message);
void fail_job(Pass& pass, const std::string& reason, const std::string& message);
// Counts a restart for this failure, or ends the job when a rule or the budget says so. scope:
// Worker or Job.
void record_failure(Pass& pass, const Failure& failure, const std::string& scope, Time episode_end);
// New pods belong to a new generation: a restart, a resume, a release.
void begin_generation(Pass& pass, Time time);

// Pods.
bool pod_ended(const api::Pod& pod);
int generation_of(const api::Pod& pod);
const api::Node* node_of(const Pass& pass, const std::string& name);
// Still there and perhaps still at work: not ended, and if it is being deleted, its grace is not
// over on a node that lives.
bool still_there(const Pass& pass, const api::Pod& pod);
// Asks for the deletion of every pod that runs; wakes when the last one's grace is over. True: none
// is left.
bool remove_all_pods(Pass& pass, const std::string& why);
// The object of the gang provider (operator.md 8). One that is left behind blocks its queue's
// quota.
void apply_gang(Pass& pass);
void delete_gang(Pass& pass);
bool members_complete(const Pass& pass);  // every slot's live pod is registered
bool silent(const Pass& pass);            // no report for some time
int registered_workers(const Pass& pass);

// Plans.
schedule::Family family_of(const std::string& type);  // of schedule.type
int micro_batches_of(const api::JobSpec& spec, int micro_batch_size);
std::optional<planner::Model> model_of(const Pass& pass, std::string& why_not);
planner::Cluster cluster_of(const Pass& pass);
// Puts a plan into status and emits CreatePlan; revision, parent, uid are filled in here.
void adopt_plan(Pass& pass, schedule::Plan plan, schedule::Trigger trigger, double predicted_gain);
// Caps of stages that ran out of memory (status.memory_limits).
void limit_caps(const Pass& pass, schedule::Plan& plan);

std::string percent(double fraction);                  // "11.2"
std::string number(double value, int digits);          // "1.42"
std::string bits_per_second(double bytes_per_second);  // "9.1 Gbit/s"

}  // namespace weir::reconcile
