// SPDX-License-Identifier: Apache-2.0
// Suspend and resume. The deletion of the pods makes them save: after SIGTERM a worker asks its
// coordinator to finish the step and save within the pod's grace. Condition Suspended keeps the
// progress over a restart of the operator: first reason Suspending, then True.
#include "operator/controller/reconcile/pass.h"

namespace weir::reconcile {
namespace {

std::string saved_text(const Pass& pass) {
  std::optional<std::int64_t> saved = pass.job().report.last_checkpoint_step;
  if (pass.snapshot.report && pass.snapshot.report->body.last_checkpoint_step >= 0)
    saved = pass.snapshot.report->body.last_checkpoint_step;
  if (saved) return "the checkpoint has step " + std::to_string(*saved);
  return pass.spec().checkpoint_path.empty()
             ? "without a checkpoint block, training will start again at step 0"
             : "no checkpoint was reported";
}

void begin(Pass& pass) {
  pass.set("Suspended", "False", "Suspending", "the workers save and end");
  pass.set("Ready", "False", "Suspended", "suspend is true");
  pass.guarded = true;
}

void end(Pass& pass) {
  const std::string text = saved_text(pass);
  pass.set("Suspended", "True", "Suspended", "no pod runs; " + text);
  pass.guarded = true;
  pass.event("Normal", "Suspended", "all pods have ended; " + text, "Suspend");
}

void resume(Pass& pass) {
  const auto* suspended = api::find_condition(pass.status.conditions, "Suspended");
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(pass.now() - suspended->since).count();
  pass.status.suspended_seconds += std::max<std::int64_t>(seconds, 0);
  pass.status.restart_streak = 0;
  begin_generation(pass, pass.now());
  pass.set("Suspended", "False", "Resumed", "");
  pass.set("Ready", "False", "Pending", "suspend is false again");
  pass.event("Normal", "Resumed", "after " + std::to_string(seconds) + " s; " + saved_text(pass),
             "Resume");
}

void show_suspended(Pass& pass) {
  const std::string text = "suspend is true";
  pass.set("Ready", "False", "Suspended", text);
  pass.set("PodsScheduled", "False", "Suspended", text);
  pass.set("WorkersReady", "False", "Suspended", text);
  pass.set("ReplanInProgress", "False", "Applied", text);
  pass.status.workers_summary = "0/" + std::to_string(pass.slots.size());
  pass.status.worker_groups.clear();
  for (const auto& group : pass.spec().worker_groups) {
    pass.status.worker_groups.push_back({.name = group.name, .desired = 0});
  }
}

}  // namespace

bool handle_suspend(Pass& pass) {
  const bool suspending = pass.has_reason("Suspended", "Suspending");
  const bool suspended = pass.is("Suspended", "True");
  if (!suspending && !suspended) {
    if (!pass.spec().suspend) return false;
    // A job that never ran has no pods, so the next pass suspends it.
    begin(pass);
    return true;
  }
  // Suspending is carried through even if the user resumes meanwhile, because pods are being
  // deleted.
  if (suspending) {
    close_group(pass);
    if (remove_all_pods(pass, "the job is suspended")) end(pass);
    show_suspended(pass);
    return true;
  }
  if (pass.spec().suspend) {
    close_group(pass);
    remove_all_pods(pass, "the job is suspended");
    delete_gang(pass);
    show_suspended(pass);
    return true;
  }
  resume(pass);
  return true;
}

}  // namespace weir::reconcile
