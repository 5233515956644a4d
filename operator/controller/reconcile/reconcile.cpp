// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/reconcile/reconcile.h"

#include <algorithm>

#include "operator/api/fit.h"
#include "operator/api/names.h"
#include "operator/controller/reconcile/lifecycle/lifecycle.h"
#include "operator/controller/reconcile/pass/refusals.h"
#include "operator/controller/reconcile/plans/plans.h"
#include "operator/controller/reconcile/status/status.h"

namespace weir::reconcile {
namespace {

constexpr int kStartsPerSecond = 10;  // status writes of starting jobs, of all jobs together

// Fields that a user should know to do nothing in this job; continues a sentence.
std::string without_effect(const api::JobSpec& spec) {
  std::string text;
  if (spec.connections_per_link && spec.transport == "NCCL") {
    text +=
        "; network.connectionsPerLink: has no effect with NCCL, use NCCL_SOCKET_NTHREADS and "
        "NCCL_NSOCKS_PERTHREAD";
  }
  if (!spec.congestion_control.empty() && spec.transport == "NCCL") {
    text += "; network.congestionControl: has no effect on the sockets of NCCL";
  }
  if ((spec.boundary_dscp || spec.bulk_dscp) && spec.transport == "NCCL") {
    text += "; network.dscp: has no effect on the sockets of NCCL, use NCCL_IB_TC on InfiniBand";
  }
  for (const auto& group : spec.worker_groups) {
    if (group.spares == 0 || spec.restart_scope != api::RestartScope::kJob) continue;
    text += "; workerGroups[" + group.name +
            "].spares: have no effect with failurePolicy.restartScope Job, which makes all pods "
            "again";
  }
  return text;
}

bool ended(const Draft& draft) {
  return draft.is("Complete", "True") || draft.is("Failed", "True");
}

// Whether the new status only shows more of the job's start, and nothing else happens.
bool shows_start(const View& view, const Draft& draft) {
  if (!draft.out.empty()) return false;
  api::JobStatus shown = view.job().status;
  shown.worker_groups = draft.status.worker_groups;
  shown.workers_summary = draft.status.workers_summary;
  for (api::Condition& before : shown.conditions) {
    const bool may_come = before.type == "PodsScheduled";
    if (!may_come && before.type != "WorkersReady" && before.type != "Ready") continue;
    const auto* now = api::find_condition(draft.status.conditions, before.type);
    if (now == nullptr || before.status == "True") continue;
    if (may_come || now->status != "True") before = *now;
  }
  return shown == draft.status;
}

// When a status that only shows the start is to be written; nothing = at once. A job's pods start
// one by one within seconds, and not every count needs a write.
std::optional<Time> status_due(const View& view, const Draft& draft) {
  const auto& written = view.snapshot.status_written;
  if (!written || *written > view.now() || !shows_start(view, draft)) return std::nullopt;
  const Time due = *written + stretched(view, view.tunables.start_status, kStartsPerSecond);
  if (due <= view.now()) return std::nullopt;
  return due;
}

// Users read the last step and loss when they see the end. So the last report is written before the
// end. It changes the resourceVersion that the status patch needs, so the pass writes nothing else,
// and the next pass writes the end.
bool report_comes_first(const Draft& draft) {
  return ended(draft) && draft.out.report;  // a job that had ended before gets only clean_up
}

Outcome done(const View& view, Draft& draft) {
  hold_back(view, draft);
  if (draft.wake) {
    const auto delay = std::chrono::ceil<std::chrono::milliseconds>(*draft.wake - view.now());
    draft.out.requeue = std::max(delay, std::chrono::milliseconds(1));
  }
  return std::move(draft.out);
}

// Adds the status patch if the status has changed, and the memory.
Outcome finish(const View& view, Draft& draft) {
  draft.status.observed_generation = view.job().meta.generation;
  count_waiting(view, draft);
  show_refused(view, draft);
  api::fit(draft.status);  // otherwise a text that is cut would be a change in every pass
  hold_back(view, draft);  // a report that was refused must not come first
  if (report_comes_first(draft)) {
    return {.report = std::move(draft.out.report), .requeue = std::chrono::milliseconds(1)};
  }
  if (const auto due = status_due(view, draft)) {
    draft.wake_at(*due);
  } else if (draft.status != view.job().status) {
    draft.out.status = PatchStatus{draft.status, draft.guarded};
  }
  draft.out.memory = std::move(draft.adaptation);
  return done(view, draft);
}

// Workers end by themselves after the last step. If a pod is deleted before that, its last log
// lines are lost, so workers of a complete job get some time.
bool may_still_log(const View& view, Draft& draft) {
  constexpr std::chrono::seconds kLastLines{10};
  if (!draft.is("Complete", "True") || !draft.status.completion_time) return false;
  const Time end = *draft.status.completion_time + kLastLines;
  if (view.now() >= end) return false;
  draft.wake_at(end);
  return true;
}

// Clean-up after the end: pods by cleanupPolicy, the gang's object, then the job itself by its TTL.
Outcome clean_up(View& view, Draft& draft) {
  const auto provider = gang::choose(view.job(), draft.status.gang_provider).provider;
  view.provider = draft.status.gang_provider.empty() ? gang::Provider::kNone : provider;
  delete_gang(view, draft);
  close_group(view, draft);
  const auto& policy = view.spec().cleanup_policy;
  for (const auto& pod : view.snapshot.pods) {
    const bool wanted = policy == api::CleanupPolicy::kAll ||
                        (policy == api::CleanupPolicy::kRunning && !pod_ended(*pod));
    if (wanted && !pod->meta.deleting && !may_still_log(view, draft))
      draft.ask(DeletePod{pod->meta.name, pod->meta.uid, "the job has ended"});
  }
  if (view.spec().ttl_seconds_after_finished && draft.status.completion_time) {
    const Time end = *draft.status.completion_time +
                     std::chrono::seconds(*view.spec().ttl_seconds_after_finished);
    if (view.now() >= end) {
      draft.ask(DeleteJob{});
    } else {
      draft.wake_at(end);
    }
  }
  return done(view, draft);
}

// Fetches an answer that the decision needs. If the request was refused, the job is not accepted.
bool fetches(const View& view, Draft& draft, Request request) {
  const RefusedRequest* no = held_back(view, draft, subject_of(request));
  if (no == nullptr) {
    draft.ask(std::move(request));  // the next pass has the answer
  } else {
    draft.refusal = {no->reason, text_of(*no)};
  }
  return false;
}

// False if an object of an earlier job of this name exists that nobody will delete.
bool check_leftovers(const View& view, Draft& draft) {
  if (!view.snapshot.pods.empty()) return true;  // the job has begun
  for (const Leftover& leftover : view.snapshot.leftovers) {
    if (!leftover.owned) {
      refuse_job(view, draft, "NameConflict",
                 leftover.what + " exists and does not belong to this job; delete it");
      return false;
    }
    draft.predecessor =
        "waits until " + leftover.what + " of the deleted job of this name is deleted";
  }
  return true;
}

// True if the job may run. Otherwise it is refused (Accepted=False), or an answer must be fetched
// first.
bool check_acceptance(const View& view, Draft& draft) {
  const auto scrape = static_cast<int>(view.tunables.scrape_interval.count());
  if (const auto refusal = api::refuse(view.spec(), scrape)) {
    refuse_job(view, draft, refusal->reason, refusal->message);
    return false;
  }
  const auto gang = gang::choose(view.job(), draft.status.gang_provider);
  if (gang.refusal) {
    refuse_job(view, draft, gang.refusal->reason, gang.refusal->message);
    return false;
  }
  if (const auto refusal = refuse_resize(view, draft)) {
    refuse_job(view, draft, refusal->reason, refusal->message);
    return false;
  }
  const std::string hash = api::template_hash(view.job());
  const auto& check = view.snapshot.template_check;
  if (!check || check->hash != hash) return fetches(view, draft, DryRunPods{hash});
  if (!check->accepted) {
    refuse_job(view, draft, check->reason, check->message);
    return false;
  }
  if (view.spec().profile.source == api::ProfileSource::kConfigMap) {
    if (!view.snapshot.profile) return fetches(view, draft, ReadProfile{});
    if (!view.snapshot.profile->error.empty() && view.plan == nullptr) {
      refuse_job(view, draft, "ProfileMissing", view.snapshot.profile->error);
      draft.wake_at(view.now() + std::chrono::seconds(10));  // the ConfigMap may come later
      return false;
    }
  }
  if (!check_leftovers(view, draft)) return false;
  if (view.snapshot.service_exists && draft.predecessor.empty() &&
      view.snapshot.service_owner_uid != view.job().meta.uid) {
    refuse_job(view, draft, "NameConflict",
               "Service " + view.job().meta.name +
                   " exists and does not belong to this job; delete it or rename the job");
    return false;
  }
  if (!draft.status.template_hash.empty() && draft.status.template_hash != hash &&
      std::ranges::any_of(view.snapshot.pods, [](const auto& pod) { return !pod_ended(*pod); })) {
    draft.event(
        "Normal", "TemplateChangePending",
        "the template was edited: new pods use it, pods whose trainer has never started are "
        "made again, and running pods stay as they are",
        "Validate");
  }
  draft.status.template_hash = hash;
  if (draft.status.gang_provider.empty() && gang.provider != gang::Provider::kNone) {
    draft.event("Normal", "GangProviderChosen", gang::name(gang.provider), "Validate");
  }
  draft.status.gang_provider = gang::name(gang.provider);
  draft.accepted_note = "the job can run" + without_effect(view.job().spec);
  return true;
}

// Finds the plan in force: the newest, or after a refusal the applied one.
void find_plans(View& view, const Draft& draft) {
  const auto& report = view.snapshot.report;
  const auto& status = draft.status.plan;
  view.refused = report && report->body.last_switch && status.applied_revision != status.revision &&
                 report->body.last_switch->revision == status.revision &&
                 report->body.last_switch->outcome != protocol::Outcome::kApplied;
  for (const auto& plan : view.snapshot.plans) {
    if (plan.revision == status.revision) view.newest = &plan;
    if (plan.revision == status.applied_revision) view.applied = &plan;
  }
  view.plan = view.refused ? view.applied : view.newest;
}

// Everything about the pods and plans of a job that is to run. estimates: those of the view.
void run(View& view, Draft& draft, estimator::Estimates& estimates, bool accepted) {
  if (handle_release(view, draft)) return show_conditions(view, draft);
  judge_network(view, draft, estimates);
  if (accepted) draft.accepted_note += codecs_without_effect(view, draft);
  name_coordinator(view, draft);
  find_failures(view, draft);
  if (handle_failures(view, draft) || handle_deadlines(view, draft) ||
      record_restarts_in_place(view, draft)) {
    return show_report(view, draft);
  }
  delete_pods(view, draft, accepted);
  // No plan is made if its ConfigMap or the status that names it cannot be written now.
  const bool plans =
      !held_back(view, draft, kPlanSubject) && !held_back(view, draft, kStatusSubject);
  if (accepted) create_pods(view, draft);
  if (accepted && plans) make_plans(view, draft);
  show_conditions(view, draft);
  ask_why_pods_wait(view, draft);
  if (accepted) open_gates(view, draft);
  if (plans) adapt(view, draft);
  show_report(view, draft);
}

}  // namespace

Outcome reconcile(const Snapshot& snapshot, const estimator::Estimates& estimates,
                  const Tunables& tunables) {
  if (!snapshot.job) return {};
  const std::string& manager = snapshot.job->spec.managed_by;
  if (!manager.empty() && manager != api::kManagedByUs) return {};

  estimator::Estimates seen = estimates;
  View view{snapshot, seen, tunables};
  Draft draft(snapshot);
  if (snapshot.job->meta.deleting) {
    view.provider = gang::choose(view.job(), draft.status.gang_provider).provider;
    close_group(view, draft);  // otherwise Kueue keeps the pods, and they keep the job
    return done(view, draft);
  }
  if (ended(draft)) return clean_up(view, draft);
  find_plans(view, draft);
  draft.status.selector = api::kJobName + ("=" + view.job().meta.name);
  if (!draft.status.start_time) draft.status.start_time = view.now();

  // A job that is not accepted gets no new pods. Running ones stay, in the size accepted last.
  view.provider = gang::choose(view.job(), draft.status.gang_provider).provider;
  const bool accepted = check_acceptance(view, draft);
  find_sizes(view, draft, accepted);
  find_slots(view);
  if (view.slots.empty()) {
    show_conditions(view, draft);
    return finish(view, draft);
  }
  if (!draft.predecessor.empty()) {  // its deletion wakes the job
    show_conditions(view, draft);
    return finish(view, draft);
  }
  if (handle_end(view, draft)) {
    const bool slow = ended(draft) && draft.is("Degraded", "True");
    if (slow) draft.set("Degraded", "False", "AsPlanned", "");  // nothing makes an ended job slower
    show_model(view, draft);
    show_report(view, draft);
    return finish(view, draft);
  }
  if (handle_suspend(view, draft)) {
    show_acceptance(draft);
    show_report(view, draft);
    return finish(view, draft);
  }
  const bool started =
      std::ranges::any_of(view.slots, [](const Slot& slot) { return slot.pod != nullptr; });
  if (!accepted && !started) {
    // An answer is being fetched, and the pass that follows at once writes the status.
    if (!draft.refusal) return done(view, draft);
    show_conditions(view, draft);
    return finish(view, draft);
  }
  if (!snapshot.service_exists) draft.ask(CreateService{});
  if (snapshot.control_ca != snapshot.ca_bundle || snapshot.written_url != snapshot.control_url)
    draft.ask(ApplyControlConfigMap{});
  if (accepted) apply_gang(view, draft);
  run(view, draft, seen, accepted);
  return finish(view, draft);
}

}  // namespace weir::reconcile
