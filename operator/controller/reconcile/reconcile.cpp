// SPDX-License-Identifier: Apache-2.0
#include "operator/controller/reconcile/reconcile.h"

#include <algorithm>

#include "operator/api/fit.h"
#include "operator/api/names.h"
#include "operator/controller/reconcile/pass.h"
#include "operator/controller/reconcile/refusals.h"

namespace weir::reconcile {
namespace {

constexpr int kStartsPerSecond = 10;  // status writes of starting jobs, of all jobs together

bool ended(const Pass& pass) {
  return pass.is("Complete", "True") || pass.is("Failed", "True");
}

// Whether the new status only shows more of the job's start, and nothing else happens.
bool shows_start(const Pass& pass) {
  if (!pass.out.empty()) return false;
  api::JobStatus shown = pass.job().status;
  shown.worker_groups = pass.status.worker_groups;
  shown.workers_summary = pass.status.workers_summary;
  for (api::Condition& before : shown.conditions) {
    const bool may_come = before.type == "PodsScheduled";
    if (!may_come && before.type != "WorkersReady" && before.type != "Ready") continue;
    const auto* now = api::find_condition(pass.status.conditions, before.type);
    if (now == nullptr || before.status == "True") continue;
    if (may_come || now->status != "True") before = *now;
  }
  return shown == pass.status;
}

// When a status that only shows the start is to be written; nothing = at once. A job's pods start
// one by one within seconds, and not every count needs a write.
std::optional<Time> status_due(const Pass& pass) {
  const auto& written = pass.snapshot.status_written;
  if (!written || *written > pass.now() || !shows_start(pass)) return std::nullopt;
  const Time due = *written + stretched(pass, pass.tunables.start_status, kStartsPerSecond);
  if (due <= pass.now()) return std::nullopt;
  return due;
}

// Users read the last step and loss when they see the end. So the last report is written before the
// end. It changes the resourceVersion that the status patch needs, so the pass writes nothing else,
// and the next pass writes the end.
bool report_comes_first(const Pass& pass) {
  return ended(pass) && pass.out.report;  // a job that had ended before gets only clean_up
}

Outcome done(Pass& pass) {
  hold_back(pass);
  if (pass.wake) {
    const auto delay = std::chrono::ceil<std::chrono::milliseconds>(*pass.wake - pass.now());
    pass.out.requeue = std::max(delay, std::chrono::milliseconds(1));
  }
  return std::move(pass.out);
}

// Adds the status patch if the status has changed, and the memory.
Outcome finish(Pass& pass) {
  pass.status.observed_generation = pass.job().meta.generation;
  count_waiting(pass);
  show_refused(pass);
  api::fit(pass.status);  // otherwise a text that is cut would be a change in every pass
  hold_back(pass);        // a report that was refused must not come first
  if (report_comes_first(pass)) {
    return {.report = std::move(pass.out.report), .requeue = std::chrono::milliseconds(1)};
  }
  if (const auto due = status_due(pass)) {
    pass.wake_at(*due);
  } else if (pass.status != pass.job().status) {
    pass.out.status = PatchStatus{pass.status, pass.guarded};
  }
  pass.out.memory = std::move(pass.adaptation);
  return done(pass);
}

// Workers end by themselves after the last step. If a pod is deleted before that, its last log
// lines are lost, so workers of a complete job get some time.
bool may_still_log(Pass& pass) {
  constexpr std::chrono::seconds kLastLines{10};
  if (!pass.is("Complete", "True") || !pass.status.completion_time) return false;
  const Time end = *pass.status.completion_time + kLastLines;
  if (pass.now() >= end) return false;
  pass.wake_at(end);
  return true;
}

// Clean-up after the end: pods by cleanupPolicy, the gang's object, then the job itself by its TTL.
Outcome clean_up(Pass& pass) {
  const auto provider = gang::choose(pass.job(), pass.status.gang_provider).provider;
  pass.provider = pass.status.gang_provider.empty() ? gang::Provider::kNone : provider;
  delete_gang(pass);
  close_group(pass);
  const auto& policy = pass.spec().cleanup_policy;
  for (const auto& pod : pass.snapshot.pods) {
    const bool wanted = policy == api::CleanupPolicy::kAll ||
                        (policy == api::CleanupPolicy::kRunning && !pod_ended(*pod));
    if (wanted && !pod->meta.deleting && !may_still_log(pass))
      pass.ask(DeletePod{pod->meta.name, pod->meta.uid, "the job has ended"});
  }
  if (pass.spec().ttl_seconds_after_finished && pass.status.completion_time) {
    const Time end = *pass.status.completion_time +
                     std::chrono::seconds(*pass.spec().ttl_seconds_after_finished);
    if (pass.now() >= end) {
      pass.ask(DeleteJob{});
    } else {
      pass.wake_at(end);
    }
  }
  return done(pass);
}

// Fetches an answer that the decision needs. If the request was refused, the job is not accepted.
bool fetches(Pass& pass, Request request) {
  const RefusedRequest* no = held_back(pass, subject_of(request));
  if (no == nullptr) {
    pass.ask(std::move(request));  // the next pass has the answer
  } else {
    pass.refusal = {no->reason, text_of(*no)};
  }
  return false;
}

// False if an object of an earlier job of this name exists that nobody will delete.
bool check_leftovers(Pass& pass) {
  if (!pass.snapshot.pods.empty()) return true;  // the job has begun
  for (const Leftover& leftover : pass.snapshot.leftovers) {
    if (!leftover.owned) {
      refuse_job(pass, "NameConflict",
                 leftover.what + " exists and does not belong to this job; delete it");
      return false;
    }
    pass.predecessor =
        "waits until " + leftover.what + " of the deleted job of this name is deleted";
  }
  return true;
}

// True if the job may run. Otherwise it is refused (Accepted=False), or an answer must be fetched
// first.
bool check_acceptance(Pass& pass) {
  const auto scrape = static_cast<int>(pass.tunables.scrape_interval.count());
  if (const auto refusal = api::refuse(pass.spec(), scrape)) {
    refuse_job(pass, refusal->reason, refusal->message);
    return false;
  }
  const auto gang = gang::choose(pass.job(), pass.status.gang_provider);
  if (gang.refusal) {
    refuse_job(pass, gang.refusal->reason, gang.refusal->message);
    return false;
  }
  if (const auto refusal = refuse_resize(pass)) {
    refuse_job(pass, refusal->reason, refusal->message);
    return false;
  }
  const std::string hash = api::template_hash(pass.job());
  const auto& check = pass.snapshot.template_check;
  if (!check || check->hash != hash) return fetches(pass, DryRunPods{hash});
  if (!check->accepted) {
    refuse_job(pass, check->reason, check->message);
    return false;
  }
  if (pass.spec().profile.source == api::ProfileSource::kConfigMap) {
    if (!pass.snapshot.profile) return fetches(pass, ReadProfile{});
    if (!pass.snapshot.profile->error.empty() && pass.plan == nullptr) {
      refuse_job(pass, "ProfileMissing", pass.snapshot.profile->error);
      pass.wake_at(pass.now() + std::chrono::seconds(10));  // the ConfigMap may come later
      return false;
    }
  }
  if (!check_leftovers(pass)) return false;
  if (pass.snapshot.service_exists && pass.predecessor.empty() &&
      pass.snapshot.service_owner_uid != pass.job().meta.uid) {
    refuse_job(pass, "NameConflict",
               "Service " + pass.job().meta.name +
                   " exists and does not belong to this job; delete it or rename the job");
    return false;
  }
  if (!pass.status.template_hash.empty() && pass.status.template_hash != hash &&
      std::ranges::any_of(pass.snapshot.pods, [](const auto& pod) { return !pod_ended(*pod); })) {
    pass.event("Normal", "TemplateChangePending",
               "the template was edited: new pods use it, pods whose trainer has never started are "
               "made again, and running pods stay as they are",
               "Validate");
  }
  pass.status.template_hash = hash;
  if (pass.status.gang_provider.empty() && gang.provider != gang::Provider::kNone) {
    pass.event("Normal", "GangProviderChosen", gang::name(gang.provider), "Validate");
  }
  pass.status.gang_provider = gang::name(gang.provider);
  pass.accepted_note = "the job can run";
  return true;
}

// Finds the plan in force: the newest, or after a refusal the applied one.
void find_plans(Pass& pass) {
  const auto& report = pass.snapshot.report;
  const auto& status = pass.status.plan;
  pass.refused = report && report->body.last_switch && status.applied_revision != status.revision &&
                 report->body.last_switch->revision == status.revision &&
                 report->body.last_switch->outcome != protocol::Outcome::kApplied;
  for (const auto& plan : pass.snapshot.plans) {
    if (plan.revision == status.revision) pass.newest = &plan;
    if (plan.revision == status.applied_revision) pass.applied = &plan;
  }
  pass.plan = pass.refused ? pass.applied : pass.newest;
}

// Everything about the pods and plans of a job that is to run.
void run(Pass& pass, bool accepted) {
  if (handle_release(pass)) return show_conditions(pass);
  find_failures(pass);
  if (handle_failures(pass) || handle_deadlines(pass)) return show_report(pass);
  delete_pods(pass, accepted);
  // No plan is made if its ConfigMap or the status that names it cannot be written now.
  const bool plans = !held_back(pass, kPlanSubject) && !held_back(pass, kStatusSubject);
  if (accepted) create_pods(pass);
  if (accepted && plans) make_plans(pass);
  show_conditions(pass);
  ask_why_pods_wait(pass);
  if (accepted) open_gates(pass);
  if (plans) adapt(pass);
  show_report(pass);
}

}  // namespace

void refuse_job(Pass& pass, const std::string& reason, const std::string& message) {
  const auto* before = api::find_condition(pass.job().status.conditions, "Accepted");
  if (before == nullptr || before->message != message) {
    pass.event("Warning", "InvalidSpec", reason + ": " + message, "Validate");
  }
  pass.refusal = {reason, message};
}

Outcome reconcile(const Snapshot& snapshot, const estimator::Estimates& estimates,
                  const Tunables& tunables) {
  if (!snapshot.job) return {};
  const std::string& manager = snapshot.job->spec.managed_by;
  if (!manager.empty() && manager != api::kManagedByUs) return {};

  Pass pass{snapshot, estimates, tunables, snapshot.job->status};
  if (snapshot.job->meta.deleting) {
    pass.provider = gang::choose(pass.job(), pass.status.gang_provider).provider;
    close_group(pass);  // otherwise Kueue keeps the pods, and they keep the job
    return done(pass);
  }
  pass.adaptation = snapshot.adaptation;
  if (ended(pass)) return clean_up(pass);
  find_plans(pass);
  pass.status.selector = api::kJobName + ("=" + pass.job().meta.name);
  if (!pass.status.start_time) pass.status.start_time = pass.now();

  // A job that is not accepted gets no new pods. Running ones stay, in the size accepted last.
  pass.provider = gang::choose(pass.job(), pass.status.gang_provider).provider;
  const bool accepted = check_acceptance(pass);
  find_sizes(pass, accepted);
  find_slots(pass);
  if (pass.slots.empty()) {
    show_conditions(pass);
    return finish(pass);
  }
  if (!pass.predecessor.empty()) {  // its deletion wakes the job
    show_conditions(pass);
    return finish(pass);
  }
  if (handle_end(pass)) {
    show_report(pass);
    return finish(pass);
  }
  if (handle_suspend(pass)) {
    show_acceptance(pass);
    show_report(pass);
    return finish(pass);
  }
  const bool started =
      std::ranges::any_of(pass.slots, [](const Slot& slot) { return slot.pod != nullptr; });
  if (!accepted && !started) {
    // An answer is being fetched, and the pass that follows at once writes the status.
    if (!pass.refusal) return done(pass);
    show_conditions(pass);
    return finish(pass);
  }
  if (!snapshot.service_exists) pass.ask(CreateService{});
  if (snapshot.control_ca != snapshot.ca_bundle || snapshot.written_url != snapshot.control_url)
    pass.ask(ApplyControlConfigMap{});
  if (accepted) apply_gang(pass);
  run(pass, accepted);
  return finish(pass);
}

}  // namespace weir::reconcile
