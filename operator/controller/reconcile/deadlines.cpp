// SPDX-License-Identifier: Apache-2.0
// Deadlines of start, progress, scheduling and the whole job, and the restart budget, which an hour
// of progress resets.
#include "operator/controller/reconcile/pass.h"
#include "operator/controller/reconcile/refusals.h"
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

bool all_in_plan(const Pass& pass) {
  return pass.plan != nullptr && std::ranges::all_of(pass.slots, [&](const Slot& slot) {
           if (!needed(pass, slot)) return true;
           if (!slot.pod) return false;
           const std::string& uid = slot.pod->meta.uid;
           const auto& idle = pass.plan->idle;
           return std::ranges::any_of(pass.plan->ranks,
                                      [&](const auto& rank) { return rank.pod_uid == uid; }) ||
                  std::ranges::find(idle, slot.pod->meta.name) != idle.end();
         });
}

namespace {

// Restarts the job after a deadline. False if the silence is not confirmed yet (heard_out).
bool restart_job(Pass& pass, Cause cause, Time limit, std::string text) {
  const Failure failure{
      .cause = cause, .time = pass.now(), .text = std::move(text), .unheard_until = limit};
  if (!heard_out(pass, failure)) return false;
  record_failure(pass, failure, "Job", pass.now());
  return true;
}

// All pods have a node, but not all workers have registered in time. If all pods belong to the
// plan, they have registered before, and hangs() handles their silence.
bool startup_timed_out(Pass& pass) {
  const auto* scheduled = api::find_condition(pass.status.conditions, "PodsScheduled");
  if (scheduled == nullptr || scheduled->status != "True" || !pass.failures.empty() ||
      all_in_plan(pass) || members_complete(pass))
    return false;
  const Time since = std::max(scheduled->since, pass.status.last_restart_time.value_or(Time{}));
  const Time limit = std::max(since + seconds(pass.spec().startup_timeout_seconds),
                              pass.snapshot.leading_since + kNewLeaderWaits);
  if (pass.now() < limit) {
    pass.wake_at(limit);
    return false;
  }
  const auto missing = pass.slots.size() - static_cast<std::size_t>(registered_workers(pass));
  return restart_job(pass, Cause::kStartupTimedOut, limit,
                     std::to_string(missing) + " of " + std::to_string(pass.slots.size()) +
                         " workers have not registered within startupTimeoutSeconds " +
                         std::to_string(pass.spec().startup_timeout_seconds));
}

// The coordinator does not report, and the step in the workers' own metrics stands still. Silence
// alone is no hang; the metrics must confirm it, and they must be fresh.
bool hangs_in_silence(Pass& pass) {
  const auto& witness = pass.estimates.progress;
  if (!witness || !all_in_plan(pass)) return false;
  // The freshness of links does not matter here, because in a hang no link has traffic.
  const auto& adaptation = pass.spec().adaptation;
  const int kept =
      std::max(adaptation.stale_after_seconds, 2 * adaptation.evaluation_interval_seconds);
  if (pass.now() - witness->seen > seconds(kept)) return false;
  const auto& report = pass.snapshot.report;
  const Time since = std::max(
      {witness->since, report ? report->received : pass.snapshot.leading_since,
       pass.status.plan.time.value_or(Time{}), pass.status.last_restart_time.value_or(Time{})});
  const Time limit = since + seconds(pass.spec().progress_deadline_seconds);
  if (pass.now() < limit) {
    pass.wake_at(limit);
    return false;
  }
  return restart_job(pass, Cause::kNoProgress, limit,
                     "the coordinator is silent and weir_step in Prometheus stands at " +
                         std::to_string(witness->step) + " for progressDeadlineSeconds " +
                         std::to_string(pass.spec().progress_deadline_seconds));
}

// Whether the job hangs: the coordinator reports, but the step stands still, or it is silent and
// the metrics confirm a hang.
bool hangs(Pass& pass) {
  const auto& report = pass.snapshot.report;
  if (pass.plan == nullptr || !pass.failures.empty()) return false;
  if (silent(pass)) return hangs_in_silence(pass);
  if (!report || !members_complete(pass)) return false;
  auto& state = pass.adaptation;
  if (report->body.step != state.last_step) {
    state.last_step = report->body.step;
    state.last_step_time = report->received;
  }
  const Time since = std::max({state.last_step_time, pass.status.plan.time.value_or(Time{}),
                               pass.status.last_restart_time.value_or(Time{})});
  const Time limit = since + seconds(pass.spec().progress_deadline_seconds);
  if (pass.now() < limit) {
    pass.wake_at(limit);
    return false;
  }
  return restart_job(pass, Cause::kNoProgress, limit,
                     "no step completed for progressDeadlineSeconds " +
                         std::to_string(pass.spec().progress_deadline_seconds) + ", step " +
                         std::to_string(report->body.step));
}

// Since when the newest pods could have found a node. Time in a queue does not count, and a new
// leader does not know how long that was.
Time could_be_scheduled(Pass& pass, Time newest) {
  auto& state = pass.adaptation;
  const bool waits = queued(pass).has_value();
  if (state.queued && !waits) state.let_in = pass.now();
  state.queued = waits;
  if (pass.provider == gang::Provider::kNone) return newest;
  return std::max(newest, state.let_in.value_or(pass.snapshot.leading_since));
}

// Releases all pods, so that they hold no resources. They are made again later.
void release(Pass& pass, const std::string& why) {
  auto& status = pass.status;
  const seconds delay = release_delay(pass.job().meta.uid, status.scheduling_timeouts);
  status.scheduling_timeouts += 1;
  status.scheduling_retry = pass.now() + delay;
  begin_generation(pass, pass.now());
  const std::string text =
      why + "; all pods are released and made again in " + std::to_string(delay.count()) + " s";
  pass.set("PodsScheduled", "False", "SchedulingTimedOut", text);
  pass.event("Warning", "SchedulingTimedOut", text, "Schedule");
}

// If some needed pods have found no node in time, or cannot be made at all, the others are
// released, too, because training does not run without them.
bool scheduling_timed_out(Pass& pass) {
  const int timeout = pass.spec().scheduling_timeout_seconds;
  const RefusedRequest* no = refused_start(pass);
  bool waiting = false, lacking = false, held = false;
  Time newest{};
  for (const auto& slot : pass.slots) {
    if (!needed(pass, slot)) continue;  // training does not wait for it
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
    pass.status.scheduling_timeouts = 0;
    return false;
  }
  if (lacking) newest = std::max(newest, pass.status.last_restart_time.value_or(newest));
  const Time since = could_be_scheduled(pass, newest);
  if (timeout == 0 || pass.adaptation.queued || !held) return false;
  const Time limit = since + seconds(timeout);
  if (pass.now() < limit) {
    pass.wake_at(limit);
    return false;
  }
  release(pass, std::string(lacking ? "not all pods could be made" : "not all pods found a node") +
                    " within scheduling.timeoutSeconds " + std::to_string(timeout) +
                    (lacking ? " (" + text_of(*no) + ")" : ""));
  return true;
}

// All workers have registered and wait, but there is no plan for them.
bool planning_timed_out(Pass& pass) {
  if (pass.plan_lives || !members_complete(pass) || !pass.failures.empty()) return false;
  const auto* accepted = api::find_condition(pass.status.conditions, "Accepted");
  const auto* scheduled = api::find_condition(pass.status.conditions, "PodsScheduled");
  if (accepted == nullptr || scheduled == nullptr || scheduled->status != "True") return false;
  const bool impossible = accepted->status == "False" && (accepted->reason == "NoFeasiblePlan" ||
                                                          accepted->reason == "ProfileMissing");
  const RefusedRequest* no = refused(pass, kPlanSubject);
  if (!impossible && no == nullptr) return false;
  Time since = std::max(scheduled->since, pass.status.last_restart_time.value_or(Time{}));
  if (impossible) since = std::max(since, accepted->since);
  const Time limit = since + seconds(pass.spec().startup_timeout_seconds);
  if (pass.now() < limit) {
    pass.wake_at(limit);
    return false;
  }
  const std::string in_time =
      " within startupTimeoutSeconds " + std::to_string(pass.spec().startup_timeout_seconds);
  if (impossible) {
    fail_job(pass, accepted->reason, "no plan could be made" + in_time + ": " + accepted->message);
  } else {
    release(pass, "the plan could not be written" + in_time + " (" + text_of(*no) + ")");
  }
  return true;
}

void reset_budget(Pass& pass) {
  if (pass.status.restart_budget_used == 0 || !pass.is("Ready", "True")) return;
  const auto* ready = api::find_condition(pass.status.conditions, "Ready");
  const Time due = ready->since + pass.tunables.budget_reset;
  if (pass.now() < due) return pass.wake_at(due);
  pass.status.restart_budget_used = 0;
  pass.guarded = true;
}

}  // namespace

bool handle_deadlines(Pass& pass) {
  std::erase_if(pass.status.avoided_nodes,
                [&](const auto& avoided) { return avoided.until <= pass.now(); });
  reset_budget(pass);
  return scheduling_timed_out(pass) || planning_timed_out(pass) || startup_timed_out(pass) ||
         hangs(pass);
}

bool handle_release(Pass& pass) {
  if (!pass.status.scheduling_retry) return false;
  const bool none_left = remove_all_pods(pass, "not all pods found a node in time");
  if (!none_left || pass.now() < *pass.status.scheduling_retry) {
    if (pass.now() < *pass.status.scheduling_retry) pass.wake_at(*pass.status.scheduling_retry);
    return true;
  }
  pass.status.scheduling_retry.reset();
  pass.guarded = true;
  return true;
}

bool handle_end(Pass& pass) {
  if (const auto text = finished(pass)) {
    pass.set("Complete", "True", "Succeeded", *text);
    pass.set("Finished", "True", "Succeeded", *text);
    pass.set("Ready", "True", "Complete", *text);  // for tools that wait for Ready
    // The last step needed all workers; those that ended before the coordinator were done.
    const std::string workers = std::to_string(pass.slots.size());
    pass.status.workers_summary = workers + "/" + workers;
    pass.status.completion_time = pass.now();
    pass.guarded = true;
    pass.event("Normal", "Completed", *text, "Complete");
    return true;
  }
  if (const auto text = end_unknown(pass)) {
    fail_job(pass, "EndUnknown", *text);
    return true;
  }
  if (!pass.spec().active_deadline_seconds || !pass.status.start_time ||
      pass.is("Suspended", "True") || waits_to_be_let_in(pass.status))
    return false;
  const Time limit = *pass.status.start_time + seconds(*pass.spec().active_deadline_seconds) +
                     seconds(pass.status.suspended_seconds);
  if (pass.now() < limit) {
    pass.wake_at(limit);
    return false;
  }
  fail_job(pass, "DeadlineExceeded",
           "activeDeadlineSeconds " + std::to_string(*pass.spec().active_deadline_seconds) +
               " are over (time suspended or queued excluded)");
  return true;
}

}  // namespace weir::reconcile
