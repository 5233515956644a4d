// SPDX-License-Identifier: Apache-2.0
// Deadlines of start, progress, scheduling and the whole job, and the restart budget, which an hour
// of progress resets.
#include "operator/controller/reconcile/lifecycle/lifecycle.h"
#include "operator/controller/reconcile/pass/refusals.h"
#include "worker/base/random.h"

namespace weir::reconcile {
namespace {

using std::chrono::seconds;

constexpr seconds kReleaseDelay{30}, kReleaseDelayCap{600};

// A random delay up to 30 s x 2^n, 600 s at most, so that two half-placed jobs do not compete again
// at the same time.
seconds release_delay(const std::string& uid, int timeouts) {
  constexpr int kMostDoublings = 8;  // enough to reach the cap
  const seconds most = std::min<seconds>(kReleaseDelay * (1 << std::min(timeouts, kMostDoublings)),
                                         kReleaseDelayCap);
  const auto range = static_cast<std::uint64_t>(most.count());
  const auto drawn = Random(mix_seed(static_cast<std::uint64_t>(timeouts), uid)).below(range);
  return seconds(1 + static_cast<std::int64_t>(drawn));
}

}  // namespace

bool all_in_plan(const View& view) {
  return view.plan != nullptr && std::ranges::all_of(view.slots, [&](const Slot& slot) {
           if (!needed(view, slot)) return true;
           if (!slot.pod) return false;
           const std::string& uid = slot.pod->meta.uid;
           const auto& idle = view.plan->idle;
           return std::ranges::any_of(view.plan->ranks,
                                      [&](const auto& rank) { return rank.pod_uid == uid; }) ||
                  std::ranges::find(idle, slot.pod->meta.name) != idle.end();
         });
}

namespace {

// Training may go on for hours without the missing workers, whose deadlines then count from its
// last step on.
Time since_last_step(const View& view, const Draft& draft, Time since) {
  const auto& report = view.snapshot.report;
  const bool reduced = report && !report->body.lost_replicas.empty();
  return reduced ? std::max(since, draft.adaptation.last_step_time) : since;
}

void note_step(const View& view, Draft& draft) {
  const auto& report = view.snapshot.report;
  auto& state = draft.adaptation;
  if (!report || report->body.step == state.last_step) return;
  state.last_step = report->body.step;
  state.last_step_time = report->received;
}

// Restarts the job after a deadline. False if the silence is not confirmed yet (heard_out).
bool restart_job(const View& view, Draft& draft, Cause cause, Time limit, std::string text) {
  const Failure failure{
      .cause = cause, .time = view.now(), .text = std::move(text), .unheard_until = limit};
  if (!heard_out(view, draft, failure)) return false;
  record_failure(view, draft, failure, "Job", view.now());
  return true;
}

// All pods have a node, but not all workers have registered in time. If all pods belong to the
// plan, they have registered before, and hangs() handles their silence.
bool startup_timed_out(const View& view, Draft& draft) {
  const auto* scheduled = api::find_condition(draft.status.conditions, "PodsScheduled");
  if (scheduled == nullptr || scheduled->status != "True" || !view.failures.empty() ||
      all_in_plan(view) || members_complete(view) || goes_without_missing(view, draft))
    return false;
  const Time since = since_last_step(
      view, draft, std::max(scheduled->since, draft.status.last_restart_time.value_or(Time{})));
  const Time limit = std::max(since + seconds(view.spec().startup_timeout_seconds),
                              view.snapshot.leading_since + kNewLeaderWaits);
  if (view.now() < limit) {
    draft.wake_at(limit);
    return false;
  }
  const int workers = workers_of(view), missing = workers - registered_workers(view);
  return restart_job(view, draft, Cause::kStartupTimedOut, limit,
                     std::to_string(missing) + " of " + std::to_string(workers) +
                         " workers have not registered within startupTimeoutSeconds " +
                         std::to_string(view.spec().startup_timeout_seconds));
}

// The coordinator does not report, and the step in the workers' own metrics stands still. Silence
// alone is no hang; the metrics must confirm it, and they must be fresh.
bool hangs_in_silence(const View& view, Draft& draft) {
  const auto& witness = view.estimates.progress;
  if (!witness || !all_in_plan(view)) return false;
  // The freshness of links does not matter here, because in a hang no link has traffic.
  const auto& adaptation = view.spec().adaptation;
  const int kept =
      std::max(adaptation.stale_after_seconds, 2 * adaptation.evaluation_interval_seconds);
  if (view.now() - witness->seen > seconds(kept)) return false;
  const auto& report = view.snapshot.report;
  const Time since = std::max(
      {witness->since, report ? report->received : view.snapshot.leading_since,
       draft.status.plan.time.value_or(Time{}), draft.status.last_restart_time.value_or(Time{})});
  const Time limit = since + seconds(view.spec().progress_deadline_seconds);
  if (view.now() < limit) {
    draft.wake_at(limit);
    return false;
  }
  return restart_job(view, draft, Cause::kNoProgress, limit,
                     "the coordinator is silent and weir_step in Prometheus stands at " +
                         std::to_string(witness->step) + " for progressDeadlineSeconds " +
                         std::to_string(view.spec().progress_deadline_seconds));
}

// With another replica the workers, which have the same deadline, go on without the one that hangs,
// when they have asked it in vain.
seconds for_others_to_go_on(const View& view) {
  constexpr seconds kLeast{60};
  constexpr int kPart = 10;  // of the deadline, which is that of a step
  const auto lost = std::ssize(view.snapshot.report->body.lost_replicas);
  const bool others = view.plan->replica_count() - lost > 1 && !schedule::averages(*view.plan);
  return others ? std::max(kLeast, seconds(view.spec().progress_deadline_seconds / kPart))
                : seconds{0};
}

// Whether the job hangs: the coordinator reports, but the step stands still, or it is silent and
// the metrics confirm a hang.
bool hangs(const View& view, Draft& draft) {
  const auto& report = view.snapshot.report;
  if (view.plan == nullptr || !view.failures.empty()) return false;
  if (silent(view, draft)) return hangs_in_silence(view, draft);
  if (!report || !(members_complete(view) || goes_without_missing(view, draft))) return false;
  const Time since =
      std::max({draft.adaptation.last_step_time, draft.status.plan.time.value_or(Time{}),
                draft.status.last_restart_time.value_or(Time{})});
  const Time limit =
      since + seconds(view.spec().progress_deadline_seconds) + for_others_to_go_on(view);
  if (view.now() < limit) {
    draft.wake_at(limit);
    return false;
  }
  const auto stall = stalled(view, draft);
  return restart_job(view, draft, Cause::kNoProgress, limit,
                     "no step completed for progressDeadlineSeconds " +
                         std::to_string(view.spec().progress_deadline_seconds) + ", step " +
                         std::to_string(report->body.step) + (stall ? ": " + stall->lasting : ""));
}

// Since when the newest pods could have found a node. Time in a queue does not count, and a new
// leader does not know how long that was.
Time could_be_scheduled(const View& view, Draft& draft, Time newest) {
  auto& state = draft.adaptation;
  const bool waits = queued(view).has_value();
  if (state.queued && !waits) state.let_in = view.now();
  state.queued = waits;
  if (view.provider == gang::Provider::kNone) return newest;
  return std::max(newest, state.let_in.value_or(view.snapshot.leading_since));
}

// Releases all pods, so that they hold no resources. They are made again later.
void release(const View& view, Draft& draft, const std::string& why) {
  auto& status = draft.status;
  const seconds delay = release_delay(view.job().meta.uid, status.scheduling_timeouts);
  status.scheduling_timeouts += 1;
  status.scheduling_retry = view.now() + delay;
  begin_generation(draft, view.now());
  const std::string text =
      why + "; all pods are released and made again in " + std::to_string(delay.count()) + " s";
  draft.set("PodsScheduled", "False", "SchedulingTimedOut", text);
  draft.event("Warning", "SchedulingTimedOut", text, "Schedule");
}

// If some needed pods have found no node in time, or cannot be made at all, the others are
// released, too, because training does not run without them.
bool scheduling_timed_out(const View& view, Draft& draft) {
  const int timeout = view.spec().scheduling_timeout_seconds;
  const RefusedRequest* no = refused_start(view);
  bool waiting = false, lacking = false, held = false;
  Time newest{};
  for (const auto& slot : view.slots) {
    if (!needed(view, slot)) continue;  // training does not wait for it
    if (lacks_pod(slot) && no != nullptr) {
      lacking = true;
      continue;
    }
    if (!slot.pod || pod_ended(*slot.pod)) return false;
    held = true;
    waiting = waiting || slot.pod->node.empty();
    newest = std::max(newest, slot.pod->meta.created);
  }
  if (!waiting && !lacking) {
    draft.status.scheduling_timeouts = 0;
    return false;
  }
  if (lacking) newest = std::max(newest, draft.status.last_restart_time.value_or(newest));
  const Time since = since_last_step(view, draft, could_be_scheduled(view, draft, newest));
  if (timeout == 0 || draft.adaptation.queued || !held || goes_without_missing(view, draft))
    return false;
  const Time limit = since + seconds(timeout);
  if (view.now() < limit) {
    draft.wake_at(limit);
    return false;
  }
  release(view, draft,
          std::string(lacking ? "not all pods could be made" : "not all pods found a node") +
              " within scheduling.timeoutSeconds " + std::to_string(timeout) +
              (lacking ? " (" + text_of(*no) + ")" : ""));
  return true;
}

// All workers have registered and wait, but there is no plan for them.
bool planning_timed_out(const View& view, Draft& draft) {
  if (view.plan_lives || !members_complete(view) || !view.failures.empty()) return false;
  const auto* accepted = api::find_condition(draft.status.conditions, "Accepted");
  const auto* scheduled = api::find_condition(draft.status.conditions, "PodsScheduled");
  if (accepted == nullptr || scheduled == nullptr || scheduled->status != "True") return false;
  const bool impossible = accepted->status == "False" && (accepted->reason == "NoFeasiblePlan" ||
                                                          accepted->reason == "ProfileMissing");
  const RefusedRequest* no = refused(view, kPlanSubject);
  if (!impossible && no == nullptr) return false;
  Time since = std::max(scheduled->since, draft.status.last_restart_time.value_or(Time{}));
  if (impossible) since = std::max(since, accepted->since);
  const Time limit = since + seconds(view.spec().startup_timeout_seconds);
  if (view.now() < limit) {
    draft.wake_at(limit);
    return false;
  }
  const std::string in_time =
      " within startupTimeoutSeconds " + std::to_string(view.spec().startup_timeout_seconds);
  if (impossible) {
    fail_job(view, draft, accepted->reason,
             "no plan could be made" + in_time + ": " + accepted->message);
  } else {
    release(view, draft, "the plan could not be written" + in_time + " (" + text_of(*no) + ")");
  }
  return true;
}

void reset_budget(const View& view, Draft& draft) {
  if (draft.status.restart_budget_used == 0 || !draft.is("Ready", "True")) return;
  const auto* ready = api::find_condition(draft.status.conditions, "Ready");
  const Time due = ready->since + view.tunables.budget_reset;
  if (view.now() < due) return draft.wake_at(due);
  draft.status.restart_budget_used = 0;
  draft.guarded = true;
}

}  // namespace

bool handle_deadlines(const View& view, Draft& draft) {
  std::erase_if(draft.status.avoided_nodes,
                [&](const auto& avoided) { return avoided.until <= view.now(); });
  reset_budget(view, draft);
  note_step(view, draft);
  return scheduling_timed_out(view, draft) || planning_timed_out(view, draft) ||
         startup_timed_out(view, draft) || hangs(view, draft);
}

bool handle_release(const View& view, Draft& draft) {
  if (!draft.status.scheduling_retry) return false;
  const bool none_left = remove_all_pods(view, draft, "not all pods found a node in time");
  if (!none_left || view.now() < *draft.status.scheduling_retry) {
    if (view.now() < *draft.status.scheduling_retry) draft.wake_at(*draft.status.scheduling_retry);
    return true;
  }
  draft.status.scheduling_retry.reset();
  draft.guarded = true;
  return true;
}

bool handle_end(const View& view, Draft& draft) {
  if (const auto text = finished(view, draft)) {
    draft.set("Complete", "True", "Succeeded", *text);
    draft.set("Finished", "True", "Succeeded", *text);
    draft.set("Ready", "True", "Complete", *text);  // for tools that wait for Ready
    // The last step needed all workers; those that ended before the coordinator were done.
    const std::string workers = std::to_string(workers_of(view));
    draft.status.workers_summary = workers + "/" + workers;
    draft.status.completion_time = view.now();
    draft.guarded = true;
    draft.event("Normal", "Completed", *text, "Complete");
    return true;
  }
  if (const auto text = end_unknown(view, draft)) {
    fail_job(view, draft, "EndUnknown", *text);
    return true;
  }
  if (!view.spec().active_deadline_seconds || !draft.status.start_time ||
      draft.is("Suspended", "True") || waits_to_be_let_in(draft.status))
    return false;
  const Time limit = *draft.status.start_time + seconds(*view.spec().active_deadline_seconds) +
                     seconds(draft.status.suspended_seconds);
  if (view.now() < limit) {
    draft.wake_at(limit);
    return false;
  }
  fail_job(view, draft, "DeadlineExceeded",
           "activeDeadlineSeconds " + std::to_string(*view.spec().active_deadline_seconds) +
               " are over (time suspended or queued excluded)");
  return true;
}

}  // namespace weir::reconcile
