// SPDX-License-Identifier: Apache-2.0
// Workers, their pods and what becomes of the job, part by part. Private to the rooms of reconcile.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/controller/reconcile/pass/draft.h"
#include "operator/controller/reconcile/pass/view.h"
#include "worker/base/text.h"

namespace weir::reconcile {

// The parts, in the order in which reconcile calls them. If a part returns true, the pass ends:
// what it has recorded is acted on in the next pass.
void find_sizes(View& view, Draft& draft, bool accepted);
void find_slots(View& view);  // spares come last
// Another worker coordinates if the present coordinator is lost (coordinator.cpp).
void name_coordinator(const View& view, Draft& draft);
// Asks for a list of the pods where silence alone says that a worker has failed.
void find_failures(View& view, Draft& draft);
// The coordinator has finished, or the active deadline is over.
bool handle_end(const View& view, Draft& draft);
// True = the job is suspended, so it has no pods.
bool handle_suspend(const View& view, Draft& draft);
// True = all pods are released after a scheduling timeout.
bool handle_release(const View& view, Draft& draft);
bool handle_failures(const View& view, Draft& draft);  // records restarts
// Startup, progress, scheduling; resets the restart budget.
bool handle_deadlines(const View& view, Draft& draft);
void create_pods(const View& view, Draft& draft);
void open_gates(const View& view, Draft& draft);  // placement mode Pinned
std::vector<std::string> gates_of(const api::JobSpec& spec);
// Deletes pods that another attempt or a restart of scope Job replaces, and pods of replicas that
// are not wanted any more.
void delete_pods(const View& view, Draft& draft, bool accepted);

// Verdicts.
void fail_job(const View& view, Draft& draft, const std::string& reason,
              const std::string& message);
// False if the failure rests on silence that is not confirmed yet. Then the API server is asked,
// and the next pass decides.
bool heard_out(const View& view, Draft& draft, const Failure& failure);
// Whether the pod has a rank in the plan in force.
bool in_plan(const View& view, const api::Pod& pod);
// Whether the worker has no stage in the plan in force and can take one at once, as far as is
// known: it has registered, and neither the coordinator nor the control plane misses it.
bool waits_for_stage(const View& view, const Draft& draft, const Slot& slot);
// A pod of this node is to be made again elsewhere for this cause, which is recorded, and this one
// is as old.
bool leaves_its_node(const Draft& draft, const api::Pod& pod, Cause cause);
// Counts a restart for this failure, or fails the job if a rule or the budget demands it. scope:
// Worker or Job.
void record_failure(const View& view, Draft& draft, const Failure& failure,
                    const std::string& scope, Time episode_end);
// Counts ends of trainers that their kubelets restart. The workers join again by themselves. True =
// the job has failed: a rule or the budget demands it.
bool record_restarts_in_place(const View& view, Draft& draft);
// An avoided node on which a worker is made again where no other node takes it: its network to some
// other node was broken, which may be mended.
bool is_last_resort(const api::AvoidedNode& avoided);
// Records that a worker is made again on another node. This is no failure and uses no budget.
void record_replacement(const View& view, Draft& draft, const Slot& slot, const std::string& why);
// Begins a new generation of pods, for a restart, a resume or a release.
void begin_generation(Draft& draft, Time time);
// Whether the pod is older than the last restart, and that had scope Job. Such a pod is deleted,
// and no plan may use it.
bool replaced_by_restart(const Draft& draft, const api::Pod& pod);

// Completion (completion.cpp). Why the job is done; nothing = it is not, as far as is known.
std::optional<std::string> finished(const View& view, const Draft& draft);
// Why it cannot be known whether the job is done; then it is not trained again.
std::optional<std::string> end_unknown(const View& view, const Draft& draft);

// Coordinator (coordinator.cpp). Whether the worker of this slot is the one that coordinates.
bool coordinates(const api::JobStatus& status, const Slot& slot);
const Slot* coordinator_slot(const View& view, const Draft& draft);  // null: its pod is gone
// Whether the pod has joined the coordinator that was named then.
bool met_since_move(const View& view, const api::CoordinatorStatus& coordinator,
                    const api::Pod& pod);

// The last sign of life of a worker that the coordinator hears no more (failures.cpp). Nothing: it
// hears it, or has not reported lately.
std::optional<Time> last_sign_of(const View& view, const Draft& draft, const api::Pod& pod);

// Dead links (dead_links.cpp). What the newest report tells of them; nothing: none is dead.
std::optional<std::string> dead_link_text(const View& view);
// The worker of this pod is to be made again, because its links have been dead for too long.
std::optional<Failure> cut_off(const View& view, const Draft& draft, const api::Pod& pod);

constexpr auto kBackOff = "CrashLoopBackOff";  // a kubelet waits before it starts a container again
// Ends of workers (ends.cpp). The trainer container decides, whatever the pod's phase is. A worker
// is done only if its trainer has ended with 0.
bool worker_done(const api::Pod& pod);
bool worker_failed(const api::Pod& pod);
bool worker_ended(const api::Pod& pod);  // done or failed
// How often the trainer has ended in this pod and was, or is being, restarted there by the kubelet.
int ends_in_place(const api::Pod& pod);
// When the worker ended: the trainer's or the init container's own time, else the newest change of
// a condition, else the pod's creation. It is equal in all passes.
Time ended_at(const api::Pod& pod);
// When the failure of this pod began: the earliest of its end, the request to delete it, and its
// disruption. Facts that become known later have later times, so the answer stays.
Time failed_at(const api::Pod& pod);
Failure failed_worker(const api::Pod& pod);  // pod: its worker has failed, or ended in place

// Starts (starting.cpp). Why a pod that has a node does not start; "" = no reason is known.
std::string cannot_start(const View& view, const api::Pod& pod);
void ask_why_pods_wait(const View& view, Draft& draft);

// Pods.
bool pod_ended(const api::Pod& pod);  // all its containers have ended, so it holds no resources
bool lacks_pod(const Slot& slot);     // it has no pod, or the pod's worker has failed
// Name of the pod of its first attempt, which is the hostname of all of them.
std::string first_pod_name(const View& view, const Slot& slot);
bool is_of_slot(const View& view, const Slot& slot, const std::string& pod);  // any attempt
std::string label_of(const api::Pod& pod, const char* label);                 // "" = it has none
int generation_of(const api::Pod& pod);
// The pod is made again, because its trainer has never started and the template was edited later.
bool outdated(const Draft& draft, const api::Pod& pod);
const api::Node* node_of(const View& view, const std::string& name);
bool all_in_plan(const View& view);  // the plan has the pods of all needed slots
// The pod may still work: it has not ended, and if it is being deleted, its grace is not over and
// its node is ready.
bool still_there(const View& view, const api::Pod& pod);
// Deletes every pod that still runs, and wakes when the grace of the last one is over. True = no
// pod runs.
bool remove_all_pods(const View& view, Draft& draft, const std::string& why);
// The object of the gang provider (operator/gang/README.md). It must be deleted with the pods, or
// it would block the quota of its queue.
void apply_gang(const View& view, Draft& draft);
void delete_gang(const View& view, Draft& draft);
// Closes the pod group of Kueue after its last pods.
void close_group(const View& view, Draft& draft);
// Why the job waits for its provider: pods behind a gate of Kueue, or a Pending PodGroup of
// Volcano. The scheduling timeout does not run then. Nothing = it does not wait.
std::optional<std::string> queued(const View& view);
// Why pods wait behind a gate of somebody else; nothing = they do not.
std::optional<std::string> held_by_others(const View& view);
constexpr auto kWaitsForQuota = "WaitingForQuota";  // reasons of PodsScheduled in the two cases
constexpr auto kHeldByGate = "SchedulingGated";
// Whether the status shows one of the two cases. activeDeadlineSeconds excludes that time, as it
// excludes suspended time.
bool waits_to_be_let_in(const api::JobStatus& status);
// Adds that time to suspendedSeconds when it is over.
void count_waiting(const View& view, Draft& draft);
// The coordinator has not reported for some time.
bool silent(const View& view, const Draft& draft);
// Training goes on without some replicas (protocol::Report::lost_replicas), as a report tells that
// has just come.
bool trains_reduced(const View& view, const Draft& draft);
// The same, or one of the workers that are there hangs. Either way nobody waits for those that are
// missing.
bool goes_without_missing(const View& view, const Draft& draft);
// A stall tells who waits for whom while no step is completed (stall.cpp), e.g. "3 ranks wait for
// rank 2 (replica 0, stage 2, n3), which does not answer". Nothing: steps come, as far as is known.
struct Stalled {
  std::string lasting;  // without times, so that it stays the same as long as the stall lasts
  std::string first;    // with times, as when the ranks were asked
};
std::optional<Stalled> stalled(const View& view, const Draft& draft);
bool registered(const View& view, const Slot& slot);  // its pod is a member and has not ended
int workers_of(const View& view);                     // without spares
// Workers of the first `replicas` replicas that have registered.
int registered_workers(const View& view, int replicas = 1 << 30);

// Spares (spares.cpp).
std::vector<Slot> spare_slots(const View& view);  // without their pods
// By the plan: which spares have the place of another one, which is the spare now.
void assign_roles(View& view);
int wanted_spares(const View& view);
int accepted_spares(const Draft& draft);  // that were wanted when the job was accepted last
int registered_spares(const View& view);  // at most so many as are wanted

// Size (resize.cpp).
// Training stops if it is missing: it belongs to a needed replica, and if the plan in force runs,
// it has a stage.
bool needed(const View& view, const Slot& slot);
int needed_workers(const View& view);
bool members_complete(const View& view, int replicas);  // all of the first replicas are registered
bool members_complete(const View& view);                // all needed ones are registered
bool resize_due(const View& view);
// New replicas could not copy the state of a live one, so they load the checkpoint.
bool move_refused(const View& view);
std::optional<api::Refusal> refuse_resize(const View& view, const Draft& draft);
// Why fewer replicas train than are wanted; nothing = they do not, or not for long yet.
std::optional<std::string> reduced(const View& view, Draft& draft);
// When the ended pod of a replica that does not train yet is made again.
std::optional<Time> grows_again_at(const Slot& slot);
void report_resized(const View& view, Draft& draft);

}  // namespace weir::reconcile
