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

// A new leader waits before it judges silence: members and reports come again from the coordinator.
constexpr std::chrono::seconds kNewLeaderWaits{60};
constexpr int kOutcomeSteps = 10;  // after a change, and before it at most

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
  std::string predecessor;  // what is left of the job of that name before: nothing begins beside it
  const schedule::Plan* plan = nullptr;     // in force or being applied, null = none
  const schedule::Plan* applied = nullptr;  // of status.plan.appliedRevision, null = unknown
  // Replicas, by find_sizes. Wanted: of the accepted spec. Needed: without their workers training
  // stops. Planned: whose members a plan that is made now may use.
  int wanted_replicas = 1, needed_replicas = 1, planned_replicas = 1;
  bool plan_lives = false;  // all pods of `plan` are there
  double fastest_link = 0;  // of those measured between nodes, now: bytes per second

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

// With many jobs what only informs is written less often: `per_second` times, of all jobs together.
// So the writes of an operator have a bound, whatever the number of its jobs.
inline std::chrono::seconds stretched(const Pass& pass, std::chrono::seconds least,
                                      int per_second) {
  return std::max(least, std::chrono::seconds(pass.snapshot.jobs / per_second));
}

// The parts, in the order in which reconcile calls them. A bool result: true = this pass ends here
// (record, then act).
void find_sizes(Pass& pass, bool accepted);
void find_slots(Pass& pass);
bool handle_end(Pass& pass);        // the coordinator has finished, or the active deadline is over
bool handle_suspend(Pass& pass);    // true: no pods are wanted now
bool handle_release(Pass& pass);    // likewise, after a scheduling timeout
bool handle_failures(Pass& pass);   // finds them, records restarts
bool handle_deadlines(Pass& pass);  // startup, progress, scheduling; gives the budget back
void create_pods(Pass& pass);
void open_gates(Pass& pass);  // placement mode Pinned
std::vector<std::string> gates_of(const api::JobSpec& spec);
// Those that another attempt or a restart of scope Job replaces, and those of replicas that are no
// more.
void delete_pods(Pass& pass, bool accepted);
void make_plans(Pass& pass);  // initial, restart, edited spec
void adapt(Pass& pass);       // tick: shares, tuner, outcome check
void view_acceptance(Pass& pass);
void view_conditions(Pass& pass);
void view_network(Pass& pass);
void view_report(Pass& pass);

// Verdicts.
void refuse_job(Pass& pass, const std::string& reason, const std::string& message);
void fail_job(Pass& pass, const std::string& reason, const std::string& message);
// False: it rests on silence, so the API server is asked first, and the next pass knows.
bool heard_out(Pass& pass, const Failure& failure);
// Counts a restart for this failure, or ends the job when a rule or the budget says so. scope:
// Worker or Job.
void record_failure(Pass& pass, const Failure& failure, const std::string& scope, Time episode_end);
// This worker is to be made again on another node: no failure, and no budget is used.
void record_replacement(Pass& pass, const Slot& slot, const std::string& why);
// New pods belong to a new generation: a restart, a resume, a release.
void begin_generation(Pass& pass, Time time);

// Completion (completion.cpp): why the job is done; nothing: it is not, as far as is known.
std::optional<std::string> finished(const Pass& pass);
// Why nobody can know whether it is, and why it is not trained again then.
std::optional<std::string> end_unknown(const Pass& pass);

// How a worker ended (ends.cpp): its trainer container decides, whatever the pod's phase. Only the
// exit of a trainer that has ended with 0 is done.
bool worker_done(const api::Pod& pod);
bool worker_failed(const api::Pod& pod);
bool worker_ended(const api::Pod& pod);  // either
// When: the trainer's or the init container's own time, else the newest change of a condition, else
// the pod's creation; always the same for one pod.
Time ended_at(const api::Pod& pod);
// When the failure of this pod began, as far as is known: it ended, somebody deleted it, or it was
// told to go. What becomes known later has a later time, so the answer stays.
Time failed_at(const api::Pod& pod);
Failure failed_worker(const api::Pod& pod);  // of one that has failed

// Starts (starting.cpp). Why a pod that has a node does not start, as far as is known; "": no
// reason.
std::string cannot_start(const Pass& pass, const api::Pod& pod);
void ask_why_pods_wait(Pass& pass);

// Refusals of the API server (refusals.cpp).
std::string text_of(const RefusedRequest& no);
const RefusedRequest* refused(const Pass& pass, const std::string& subject);
const RefusedRequest* refused_start(const Pass& pass);  // of pods, or of what they need
// Refused, and not to be asked for yet: wakes when it is.
const RefusedRequest* held_back(Pass& pass, const std::string& subject);
void hold_back(Pass& pass);     // takes out of the actions what is held back
void view_refused(Pass& pass);  // condition Degraded

// Pods.
bool pod_ended(const api::Pod& pod);  // all containers: it holds no resources any more
bool lacks_pod(const Slot& slot);     // none is there, or one whose worker has failed
int generation_of(const api::Pod& pod);
// Its trainer has never started, and the template was edited since it was made: it is made again.
bool outdated(const Pass& pass, const api::Pod& pod);
const api::Node* node_of(const Pass& pass, const std::string& name);
bool all_in_plan(const Pass& pass);  // every slot's pod is that of the plan
// Still there and perhaps still at work: not ended, and if it is being deleted, its grace is not
// over on a node that lives.
bool still_there(const Pass& pass, const api::Pod& pod);
// Asks for the deletion of every pod that runs; wakes when the last one's grace is over. True: none
// is left.
bool remove_all_pods(Pass& pass, const std::string& why);
// The object of the gang provider (operator/gang/README.md). One that is left behind blocks its
// queue's quota.
void apply_gang(Pass& pass);
void delete_gang(Pass& pass);
// These pods are the last of their pod group of Kueue.
void close_group(Pass& pass);
// The job waits for its own provider: pods behind a gate of Kueue, a PodGroup of Volcano that is
// Pending. No scheduling timeout runs meanwhile. The text says what is known.
std::optional<std::string> queued(const Pass& pass);
// Pods wait behind a gate that is not ours.
std::optional<std::string> held_by_others(const Pass& pass);
constexpr auto kWaitsForQuota = "WaitingForQuota";  // reasons of PodsScheduled in the two cases
constexpr auto kHeldByGate = "SchedulingGated";
// In one of the two: activeDeadlineSeconds does not count the time, as it does not count what is
// suspended.
bool waits_to_be_let_in(const api::JobStatus& status);
void count_waiting(Pass& pass);                                    // when it is over
bool silent(const Pass& pass);                                     // no report for some time
int registered_workers(const Pass& pass, int replicas = 1 << 30);  // of the first ones

// Size (resize.cpp).
bool needed(const Pass& pass, const Slot& slot);
int needed_workers(const Pass& pass);
bool members_complete(const Pass& pass, int replicas);  // of the first ones: all are registered
bool members_complete(const Pass& pass);                // of the needed ones
bool resize_due(Pass& pass);
// New replicas could not get the state of a live one: they load the checkpoint.
bool move_refused(const Pass& pass);
std::optional<api::Refusal> refuse_resize(const Pass& pass);
// Why fewer replicas train than are wanted, when that is no mere matter of a little time.
std::optional<std::string> reduced(Pass& pass);
std::optional<Time> grows_again_at(const Slot& slot);
void tell_resized(Pass& pass);

// Plans.
schedule::Family family_of(const std::string& type);  // of schedule.type
int least_share(const schedule::Plan& plan);  // micro-batches of the replica that has fewest
std::vector<int> even_shares(int micro_batches, int replicas);
void level_devices(planner::Cluster& cluster, int replicas);
std::optional<planner::Model> model_of(const Pass& pass, std::string& why_not);
planner::Cluster cluster_of(const Pass& pass);
// The planner on the members and the links as they are measured now. What does not depend on links
// is kept in the snapshot's memo, so that planning again is quick; of equal placements the nearest
// to the plan in force. plans: how many this decision asks for.
Result<planner::PlanReport> plan_for_members(const Pass& pass, const planner::Model& model);
Result<planner::PlanReport> plan_for_members(const Pass& pass, const planner::Model& model,
                                             const planner::Cluster& cluster, int plans = 1);
// Puts a plan into status and emits CreatePlan; revision, parent, uid are filled in here.
void adopt_plan(Pass& pass, schedule::Plan plan, schedule::Trigger trigger, double predicted_gain);
// Caps of stages that ran out of memory (status.memory_limits).
void limit_caps(const Pass& pass, schedule::Plan& plan);

// Replicas (replicas.cpp).
schedule::SyncPolicy first_sync(const api::JobSpec& spec, int replicas);
bool follow_sync_spec(Pass& pass);       // true: a plan was made for an edited `sync`
bool rebalance(Pass& pass, bool asked);  // true: a plan with other shares or policy was made
bool changes_shares(const Pass& pass, const AdaptationState::Pending& pending);
void keep_shares_out(Pass& pass, const AdaptationState::Pending& pending, std::int64_t step);
std::optional<std::string> straggler(const Pass& pass);              // who is slow, with numbers
schedule::Plan of_replica(const schedule::Plan& plan, int replica);  // its ranks, as replica 0
std::vector<schedule::StageTime> stage_times(const Pass& pass, const schedule::Plan& of_replica,
                                             const planner::PipelineCosts& costs);
bool replicas_known(const Pass& pass);  // their own step times under this plan
// Measured seconds of exposed sync per step, after the slowest replica has ended; 0 = unknown.
double measured_exposed_sync(const Pass& pass);

// Step times (step_seconds.cpp), seconds; 0 = unknown. Of the last kOutcomeSteps steps, as the
// coordinator timed them: a mean that begins kOutcomeSteps after a change holds none before it.
double recent_step_seconds(const Pass& pass);
// Of those among them that ran while the link rates were sampled that predictions are made from:
// on a network that has just changed, older steps ran on another one.
double sampled_step_seconds(const Pass& pass);
void note_step(Pass& pass);  // remembers the newest report's step for it

// What a link usually carries: its baseline, or before one is known what the workers' probe found
// when they started, or the default of an unprobed link. Between replicas: what the fastest link
// has now.
double usual_rate(const Pass& pass, const estimator::LinkEstimate& link);
std::vector<double> link_rates(const Pass& pass);
// Without it no tier changes the plan: what is unknown is no reason for a change.
inline bool network_known(const Pass& pass) {
  return pass.estimates.freshness == estimator::Freshness::kFresh;
}

std::string shares_text(const std::vector<int>& shares);  // "32,32"
std::string percent(double fraction);                     // "11.2"
std::string number(double value, int digits);             // "1.42"
std::string bits_per_second(double bytes_per_second);     // "9.1 Gbit/s"

}  // namespace weir::reconcile
