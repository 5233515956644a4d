// SPDX-License-Identifier: Apache-2.0
// Suspend and resume. The deletion of the pods makes them save: after SIGTERM a worker asks its
// coordinator to finish the step and save within the pod's grace. Condition Suspended keeps the
// progress over a restart of the operator: first reason Suspending, then True.

#include "operator/controller/reconcile/lifecycle/lifecycle.h"

namespace weir::reconcile {
namespace {

std::string saved_text(const View& view) {
  std::optional<std::int64_t> saved = view.job().report.last_checkpoint_step;
  if (view.snapshot.report && view.snapshot.report->body.last_checkpoint_step >= 0)
    saved = view.snapshot.report->body.last_checkpoint_step;
  if (saved) return "the checkpoint has step " + std::to_string(*saved);
  return view.spec().checkpoint_path.empty()
             ? "without a checkpoint block, training will start again at step 0"
             : "no checkpoint was reported";
}

void begin(Draft& draft) {
  draft.set("Suspended", "False", "Suspending", "the workers save and end");
  draft.set("Ready", "False", "Suspended", "suspend is true");
  draft.guarded = true;
}

void end(const View& view, Draft& draft) {
  const std::string text = saved_text(view);
  draft.set("Suspended", "True", "Suspended", "no pod runs; " + text);
  draft.guarded = true;
  draft.event("Normal", "Suspended", "all pods have ended; " + text, "Suspend");
}

void resume(const View& view, Draft& draft) {
  const auto* suspended = api::find_condition(draft.status.conditions, "Suspended");
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(view.now() - suspended->since).count();
  draft.status.suspended_seconds += std::max<std::int64_t>(seconds, 0);
  draft.status.restart_streak = 0;
  begin_generation(draft, view.now());
  draft.status.resumed_generation = draft.status.pod_generation;
  draft.set("Suspended", "False", "Resumed", "");
  draft.set("Ready", "False", "Pending", "suspend is false again");
  draft.event("Normal", "Resumed", "after " + std::to_string(seconds) + " s; " + saved_text(view),
              "Resume");
}

void show_suspended(const View& view, Draft& draft) {
  const std::string text = "suspend is true";
  draft.set("Ready", "False", "Suspended", text);
  draft.set("PodsScheduled", "False", "Suspended", text);
  draft.set("WorkersReady", "False", "Suspended", text);
  draft.set("ReplanInProgress", "False", "Applied", text);
  draft.status.workers_summary = "0/" + std::to_string(workers_of(view));
  draft.status.recovery.spares.clear();
  draft.status.worker_groups.clear();
  for (const auto& group : view.spec().worker_groups) {
    draft.status.worker_groups.push_back({.name = group.name, .desired = 0});
  }
}

}  // namespace

bool handle_suspend(const View& view, Draft& draft) {
  const bool suspending = draft.has_reason("Suspended", "Suspending");
  const bool suspended = draft.is("Suspended", "True");
  if (!suspending && !suspended) {
    if (!view.spec().suspend) return false;
    // A job that never ran has no pods, so the next pass suspends it.
    begin(draft);
    return true;
  }
  // Suspending is carried through even if the user resumes meanwhile, because pods are being
  // deleted.
  if (suspending) {
    close_group(view, draft);
    if (remove_all_pods(view, draft, "the job is suspended")) end(view, draft);
    show_suspended(view, draft);
    return true;
  }
  if (view.spec().suspend) {
    close_group(view, draft);
    remove_all_pods(view, draft, "the job is suspended");
    delete_gang(view, draft);
    show_suspended(view, draft);
    return true;
  }
  resume(view, draft);
  return true;
}

}  // namespace weir::reconcile
