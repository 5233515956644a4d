// SPDX-License-Identifier: Apache-2.0
// Status for users: the conditions of crds/README.md "Conditions", counts and plan.
#include <algorithm>
#include <numeric>

#include "operator/adaptation/adapt.h"
#include "operator/api/fit.h"
#include "operator/controller/reconcile/lifecycle/lifecycle.h"
#include "operator/controller/reconcile/pass/refusals.h"
#include "operator/controller/reconcile/plans/plans.h"
#include "operator/controller/reconcile/status/status.h"

namespace weir::reconcile {
namespace {

constexpr const char* kStandsStill = "Stalled";  // reason of Ready, and of an event
constexpr const char* kSilence = "no report from the coordinator; training may go on";

std::string pending_reason(const View& view, const api::Pod& pod) {
  for (const auto& condition : pod.conditions) {
    if (condition.type == "PodScheduled" && condition.status == "False") return condition.message;
  }
  return cannot_start(view, pod);
}

bool scheduled(const Slot& slot) {
  return slot.pod && !slot.pod->node.empty();
}

// Why a spare of the group is not there. Nothing waits for it.
std::string spares_wait(const View& view, const std::string& group) {
  for (const Slot& slot : view.slots) {
    if (slot.group != group || !slot.spare || !slot.pod) continue;
    const api::Pod& pod = *slot.pod;
    const std::string why =
        worker_failed(pod) ? failed_worker(pod).text : pending_reason(view, pod);
    if (!why.empty()) return "spare " + pod.meta.name + ": " + why;
  }
  return "";
}

void show_spares(const View& view, Draft& draft) {
  const int wanted = draft.refusal ? accepted_spares(draft) : wanted_spares(view);
  std::string& shown = draft.status.recovery.spares;
  if (wanted == 0) return shown.clear();
  const std::string all = "/" + std::to_string(wanted);
  if (!view.snapshot.members && shown.ends_with(all)) return;  // a new leader does not know yet
  shown = std::to_string(registered_spares(view)) + all;
}

void show_groups(const View& view, Draft& draft) {
  draft.status.worker_groups.clear();
  for (const auto& group : view.spec().worker_groups) {
    api::GroupStatus shown;
    shown.name = group.name;
    shown.desired = group.count * view.wanted_replicas;
    for (const auto& slot : view.slots) {
      if (slot.group != group.name || !slot.pod || slot.spare) continue;
      shown.scheduled += scheduled(slot) && !worker_ended(*slot.pod) ? 1 : 0;
      shown.ready += slot.pod->ready && !worker_ended(*slot.pod) ? 1 : 0;
      shown.failed += worker_failed(*slot.pod) ? 1 : 0;
      if (shown.pending_reason.empty()) shown.pending_reason = pending_reason(view, *slot.pod);
    }
    if (shown.pending_reason.empty()) shown.pending_reason = spares_wait(view, group.name);
    draft.status.worker_groups.push_back(std::move(shown));
  }
}

void show_scheduled(const View& view, Draft& draft) {
  if (draft.status.scheduling_retry) return;  // SchedulingTimedOut stays until pods are made again
  if (!draft.predecessor.empty())
    return draft.set("PodsScheduled", "False", "WaitingForPredecessor", draft.predecessor);
  std::string why;
  int missing = 0;
  for (const auto& slot : view.slots) {
    if (slot.spare || scheduled(slot)) continue;
    ++missing;
    if (slot.pod && why.empty()) why = slot.group + ": " + pending_reason(view, *slot.pod);
    if (why == slot.group + ": ") why.clear();
  }
  const auto all = std::to_string(workers_of(view));
  const auto lacking = std::ranges::count_if(
      view.slots, [](const Slot& slot) { return !slot.spare && lacks_pod(slot); });
  if (const auto* no = refused_start(view); no != nullptr && lacking > 0) {
    return draft.set("PodsScheduled", "False", no->reason,
                     std::to_string(lacking) + " of " + all + " pods are missing: " + text_of(*no));
  }
  if (missing == 0)
    return draft.set("PodsScheduled", "True", "AllScheduled", "all pods have a node");
  const std::string count = std::to_string(missing) + " of " + all + " pods have no node";
  if (const auto queue = queued(view))
    return draft.set("PodsScheduled", "False", kWaitsForQuota, count + ": " + *queue);
  if (const auto gate = held_by_others(view))
    return draft.set("PodsScheduled", "False", kHeldByGate, count + ": " + *gate);
  const auto& group = view.snapshot.gang.seen;
  if (group && !group->why.empty()) why = "PodGroup " + group->meta.name + ": " + group->why;
  if (why.empty()) return draft.set("PodsScheduled", "Unknown", "Unschedulable", count + " yet");
  if (!draft.is("PodsScheduled", "False")) draft.event("Warning", "Unschedulable", why, "Schedule");
  // Volcano schedules no pod until the whole group fits.
  const bool gang = view.provider == gang::Provider::kVolcano &&
                    draft.status.worker_groups.front().scheduled == 0;
  draft.set("PodsScheduled", "False", gang ? "WaitingForGang" : "Unschedulable",
            count + ": " + why);
}

void show_workers(const View& view, Draft& draft) {
  const int registered = registered_workers(view);
  const int wanted = workers_of(view);
  draft.status.workers_summary = std::to_string(registered) + "/" + std::to_string(wanted);
  if (!view.failures.empty())
    return draft.set("WorkersReady", "False", "WorkerLost", view.failures.front().text);
  // For a new leader the count of the former one stays until the coordinator registers again.
  if (!view.snapshot.members && draft.status.plan.applied_revision > 0 && all_in_plan(view)) {
    draft.status.workers_summary = view.job().status.workers_summary;
    const Time limit = view.snapshot.leading_since + kNewLeaderWaits;
    if (view.now() < limit) return draft.wake_at(limit);
    return draft.set("WorkersReady", "Unknown", "WorkerLost", kSilence);
  }
  if (registered < wanted) {
    bool starting = false;
    std::string why;
    for (const auto& slot : view.slots) {
      if (slot.spare) continue;
      starting = starting || !slot.pod || !slot.pod->started;
      if (!slot.pod || !why.empty()) continue;
      why = cannot_start(view, *slot.pod);
      if (!why.empty()) why = "pod " + slot.pod->meta.name + ": " + why;
    }
    const std::string text =
        std::to_string(registered) + " of " + std::to_string(wanted) + " workers have registered";
    if (!why.empty()) {
      if (!draft.has_reason("WorkersReady", "PodCannotStart"))
        draft.event("Warning", "PodCannotStart", why, "Start");
      return draft.set("WorkersReady", "False", "PodCannotStart", text + "; " + why);
    }
    if (starting) return draft.set("WorkersReady", "False", "Starting", text);
    return draft.set("WorkersReady", "False", "WaitingForRegistration",
                     text + "; workers must reach " + view.snapshot.control_url +
                         " and port 7070 of the coordinator");
  }
  if (silent(view, draft)) return draft.set("WorkersReady", "Unknown", "WorkerLost", kSilence);
  if (draft.status.plan.revision == 0 ||
      draft.status.plan.applied_revision != draft.status.plan.revision) {
    return draft.set("WorkersReady", "False", "Starting", "the plan is not applied yet");
  }
  const std::string idle = view.plan == nullptr ? "" : idle_text(view, *view.plan);
  draft.set("WorkersReady", "True", "AllReady",
            "all workers run the current plan" + (idle.empty() ? "" : "; " + idle));
}

// Writes lastSwitch of the report to status: which plan is in force.
void show_switch(const View& view, Draft& draft) {
  if (!view.snapshot.report || !view.snapshot.report->body.last_switch) return;
  const auto& last = *view.snapshot.report->body.last_switch;
  auto& plan = draft.status.plan;
  const bool applied = last.outcome == protocol::Outcome::kApplied;
  const bool known = plan.applied_revision == plan.revision;
  if (last.revision != plan.revision) return;
  if (known && !(applied && last.incarnation > draft.status.recovery.incarnation)) return;
  if (applied) {
    // Training goes on without a lost worker, whose place is still open.
    const bool open = known && !view.snapshot.report->body.lost_replicas.empty();
    if (open) draft.status.recovery.incarnation = last.incarnation;
    if (!open) show_recovery(view, draft, last);
    plan.applied_revision = plan.revision;
    plan.applied_step = last.step;
    draft.guarded = true;
    if (!known) report_resized(view, draft);
    return;
  }
  // A switch after a loss that meets another one is tried again by the coordinator.
  const bool again = last.outcome == protocol::Outcome::kAborted && plan.trigger == "Restart";
  if (again) return;
  // The condition shows whether the event was sent.
  const auto* replan = api::find_condition(view.job().status.conditions, "ReplanInProgress");
  if (replan != nullptr && replan->status == "False") return;
  draft.event("Warning", "PlanRefused",
              "revision " + std::to_string(plan.revision) + ": " + last.reason, "Plan");
  adaptation::refused(draft.adaptation.memory, view.newest,
                      static_cast<std::uint32_t>(plan.revision));
}

std::string parameters_text(std::int64_t count) {
  const auto value = static_cast<double>(count);
  if (count >= 1'000'000'000) return number(value / 1e9, 2) + " G";
  return count >= 1'000'000 ? number(value / 1e6, 1) + " M" : std::to_string(count);
}

void show_described(const View& view, Draft& draft) {
  if (!view.snapshot.members) return;
  const protocol::ModelInfo& model = view.snapshot.members->body.model;
  if (model.parameters <= 0) return;
  api::ModelStatus now{model.name, model.engine, model.layers, model.parameters,
                       draft.status.model.exported};
  api::fit(now);  // otherwise a text that is cut would be a change in every pass
  if (draft.status.model == now) return;
  draft.status.model = now;
  std::string text = model.name + ", " + std::to_string(model.layers) + " layers, " +
                     parameters_text(model.parameters) + " parameters";
  if (!model.engine.empty()) text += ", " + model.engine;
  if (!model.note.empty()) text += "; " + model.note;
  draft.event("Normal", "ModelDescribed", text, "Register");
}

void show_exported(const View& view, Draft& draft) {
  if (!view.snapshot.report || !view.snapshot.report->body.exported) return;
  const protocol::Exported& exported = *view.snapshot.report->body.exported;
  api::ModelStatus now = draft.status.model;
  now.exported = exported.folder;
  api::fit(now);
  if (draft.status.model == now) return;
  draft.status.model = now;
  draft.event("Normal", "Exported",
              exported.folder + ", " + megabytes(exported.bytes) + ", step " +
                  std::to_string(exported.step),
              "Report");
}

void show_plan(const View& view, Draft& draft) {
  auto& status = draft.status.plan;
  if (status.revision == 0) {
    draft.set("ReplanInProgress", "Unknown", "Initial", "no plan yet");
    return;
  }
  const bool made_now = status.revision != view.job().status.plan.revision;  // adopt_plan shows it
  if (view.plan != nullptr && !made_now) show_plan(view, draft, *view.plan);
  if (status.applied_revision == status.revision) {
    draft.set("ReplanInProgress", "False", "Applied",
              "revision " + std::to_string(status.revision) + " is applied");
  } else if (view.refused) {
    draft.set("ReplanInProgress", "False", "Applied",
              "revision " + std::to_string(status.revision) +
                  " was refused: " + view.snapshot.report->body.last_switch->reason +
                  "; revision " + std::to_string(status.applied_revision) + " stays in force");
  } else {
    draft.set("ReplanInProgress", "True", status.trigger,
              "revision " + std::to_string(status.revision) + " is being applied");
  }
}

bool show_stall(const View& view, Draft& draft) {
  const auto stall = stalled(view, draft);
  if (!stall) return false;
  if (!draft.has_reason("Ready", kStandsStill)) {
    draft.event("Warning", kStandsStill, stall->first, "Report");
  }
  draft.set("Ready", "False", kStandsStill,
            "no step after step " + std::to_string(view.snapshot.report->body.step) + ": " +
                stall->lasting);
  return true;
}

void show_ready(const View& view, Draft& draft) {
  if (draft.refusal && view.plan == nullptr)
    return draft.set("Ready", "False", "Invalid", draft.refusal->message);
  const bool restarting =
      std::ranges::any_of(view.failures, [](const auto& failure) { return failure.recorded; }) ||
      (draft.status.plan.applied_revision > 0 && draft.is("WorkersReady", "False") &&
       registered_workers(view, view.needed_replicas) < needed_workers(view));
  const auto& plan = draft.status.plan;
  const auto* workers = api::find_condition(draft.status.conditions, "WorkersReady");
  if (trains_reduced(view, draft)) {
    return draft.set("Ready", "True", "Running", "training advances without a lost replica");
  }
  if (goes_without_missing(view, draft) && show_stall(view, draft)) return;
  if (restarting) return draft.set("Ready", "False", "Restarting", workers->message);
  if (!view.plan_lives && !draft.is("PodsScheduled", "True")) {
    const bool queued = draft.has_reason("PodsScheduled", kWaitsForQuota);
    return draft.set("Ready", "False", queued ? "Queued" : "Pending",
                     api::find_condition(draft.status.conditions, "PodsScheduled")->message);
  }
  if (plan.applied_revision == 0) return draft.set("Ready", "False", "Starting", workers->message);
  const bool pauses = plan.trigger != "Retune" && plan.trigger != "Manual";
  if (plan.applied_revision != plan.revision && pauses && !view.refused) {
    return draft.set("Ready", "False", "Replanning",
                     "revision " + std::to_string(plan.revision) + " is being applied");
  }
  if (show_stall(view, draft)) return;
  draft.set("Ready", "True", "Running", "training advances");
}

}  // namespace

void show_model(const View& view, Draft& draft) {
  show_described(view, draft);
  show_exported(view, draft);
}

void show_acceptance(Draft& draft) {
  for (const char* type :
       {"Accepted", "PodsScheduled", "WorkersReady", "Ready", "Degraded", "ReplanInProgress",
        "Recoverable", "NetworkMetricsAvailable", "Suspended", "Complete", "Failed", "Finished"}) {
    if (api::find_condition(draft.status.conditions, type) == nullptr)
      draft.set(type, "Unknown", "Pending", "");
  }
  if (draft.refusal) {
    draft.set("Accepted", "False", draft.refusal->reason, draft.refusal->message);
  } else if (!draft.accepted_note.empty()) {
    draft.set("Accepted", "True", "Accepted", draft.accepted_note);
  }
}

void show_conditions(const View& view, Draft& draft) {
  show_acceptance(draft);
  if (!draft.has_reason("Suspended", "Resumed")) draft.set("Suspended", "False", "Resumed", "");
  show_groups(view, draft);
  show_spares(view, draft);
  show_switch(view, draft);
  show_replicas(view, draft);
  if (view.snapshot.report) draft.status.recovery.copies = view.snapshot.report->body.snapshots;
  show_scheduled(view, draft);
  show_workers(view, draft);
  show_model(view, draft);
  show_plan(view, draft);
  show_network(view, draft);
  show_ready(view, draft);
  show_recoverable(view, draft);
  show_trace(view, draft);
}

}  // namespace weir::reconcile
