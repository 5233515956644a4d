// SPDX-License-Identifier: Apache-2.0
// Status for users: the conditions of crds/README.md "Conditions", counts and plan.
#include <algorithm>
#include <numeric>

#include "operator/adaptation/adapt.h"
#include "operator/controller/reconcile/pass.h"
#include "operator/controller/reconcile/plan_view.h"

namespace weir::reconcile {
namespace {

constexpr const char* kSilence = "no report from the coordinator; training may go on";

std::string pending_reason(const Pass& pass, const api::Pod& pod) {
  for (const auto& condition : pod.conditions) {
    if (condition.type == "PodScheduled" && condition.status == "False") return condition.message;
  }
  return cannot_start(pass, pod);
}

bool scheduled(const Slot& slot) {
  return slot.pod && !slot.pod->node.empty();
}

void show_groups(Pass& pass) {
  pass.status.worker_groups.clear();
  for (const auto& group : pass.spec().worker_groups) {
    api::GroupStatus shown;
    shown.name = group.name;
    shown.desired = group.count * pass.wanted_replicas;
    for (const auto& slot : pass.slots) {
      if (slot.group != group.name || !slot.pod) continue;
      shown.scheduled += scheduled(slot) && !worker_ended(*slot.pod) ? 1 : 0;
      shown.ready += slot.pod->ready && !worker_ended(*slot.pod) ? 1 : 0;
      shown.failed += worker_failed(*slot.pod) ? 1 : 0;
      if (shown.pending_reason.empty()) shown.pending_reason = pending_reason(pass, *slot.pod);
    }
    pass.status.worker_groups.push_back(std::move(shown));
  }
}

void show_scheduled(Pass& pass) {
  if (pass.status.scheduling_retry) return;  // SchedulingTimedOut stays until pods are made again
  if (!pass.predecessor.empty())
    return pass.set("PodsScheduled", "False", "WaitingForPredecessor", pass.predecessor);
  std::string why;
  int missing = 0;
  for (const auto& slot : pass.slots) {
    if (scheduled(slot)) continue;
    ++missing;
    if (slot.pod && why.empty()) why = slot.group + ": " + pending_reason(pass, *slot.pod);
    if (why == slot.group + ": ") why.clear();
  }
  const auto all = std::to_string(pass.slots.size());
  const auto lacking = std::ranges::count_if(pass.slots, lacks_pod);
  if (const auto* no = refused_start(pass); no != nullptr && lacking > 0) {
    return pass.set("PodsScheduled", "False", no->reason,
                    std::to_string(lacking) + " of " + all + " pods are missing: " + text_of(*no));
  }
  if (missing == 0)
    return pass.set("PodsScheduled", "True", "AllScheduled", "all pods have a node");
  const std::string count = std::to_string(missing) + " of " + all + " pods have no node";
  if (const auto queue = queued(pass))
    return pass.set("PodsScheduled", "False", kWaitsForQuota, count + ": " + *queue);
  if (const auto gate = held_by_others(pass))
    return pass.set("PodsScheduled", "False", kHeldByGate, count + ": " + *gate);
  const auto& group = pass.snapshot.gang.seen;
  if (group && !group->why.empty()) why = "PodGroup " + group->meta.name + ": " + group->why;
  if (why.empty()) return pass.set("PodsScheduled", "Unknown", "Unschedulable", count + " yet");
  if (!pass.is("PodsScheduled", "False")) pass.event("Warning", "Unschedulable", why, "Schedule");
  // Volcano schedules no pod until the whole group fits.
  const bool gang =
      pass.provider == gang::Provider::kVolcano && pass.status.worker_groups.front().scheduled == 0;
  pass.set("PodsScheduled", "False", gang ? "WaitingForGang" : "Unschedulable", count + ": " + why);
}

void show_workers(Pass& pass) {
  const int registered = registered_workers(pass);
  const auto wanted = static_cast<int>(pass.slots.size());
  pass.status.workers_summary = std::to_string(registered) + "/" + std::to_string(wanted);
  if (!pass.failures.empty())
    return pass.set("WorkersReady", "False", "WorkerLost", pass.failures.front().text);
  // For a new leader the count of the former one stays until the coordinator registers again.
  if (!pass.snapshot.members && pass.status.plan.applied_revision > 0 && all_in_plan(pass)) {
    pass.status.workers_summary = pass.job().status.workers_summary;
    const Time limit = pass.snapshot.leading_since + kNewLeaderWaits;
    if (pass.now() < limit) return pass.wake_at(limit);
    return pass.set("WorkersReady", "Unknown", "WorkerLost", kSilence);
  }
  if (registered < wanted) {
    bool starting = false;
    std::string why;
    for (const auto& slot : pass.slots) {
      starting = starting || !slot.pod || !slot.pod->started;
      if (!slot.pod || !why.empty()) continue;
      why = cannot_start(pass, *slot.pod);
      if (!why.empty()) why = "pod " + slot.pod->meta.name + ": " + why;
    }
    const std::string text =
        std::to_string(registered) + " of " + std::to_string(wanted) + " workers have registered";
    if (!why.empty()) {
      if (!pass.has_reason("WorkersReady", "PodCannotStart"))
        pass.event("Warning", "PodCannotStart", why, "Start");
      return pass.set("WorkersReady", "False", "PodCannotStart", text + "; " + why);
    }
    if (starting) return pass.set("WorkersReady", "False", "Starting", text);
    return pass.set("WorkersReady", "False", "WaitingForRegistration",
                    text + "; workers must reach " + pass.snapshot.control_url +
                        " and port 7070 of the coordinator");
  }
  if (silent(pass)) return pass.set("WorkersReady", "Unknown", "WorkerLost", kSilence);
  if (pass.status.plan.revision == 0 ||
      pass.status.plan.applied_revision != pass.status.plan.revision) {
    return pass.set("WorkersReady", "False", "Starting", "the plan is not applied yet");
  }
  const std::string idle = pass.plan == nullptr ? "" : idle_text(pass, *pass.plan);
  pass.set("WorkersReady", "True", "AllReady",
           "all workers run the current plan" + (idle.empty() ? "" : "; " + idle));
}

// If a plan begins at step 0 although steps were complete, it found neither a checkpoint nor a live
// replica. A new coordinator reports step 0 before that, so the completed steps are those in
// status: of the last report before the restart, or if none was written, the step at which the
// former plan was applied.
void report_lost_progress(Pass& pass, std::int64_t begins_at) {
  const std::int64_t lost = std::max(pass.job().report.step, pass.status.plan.applied_step);
  if (begins_at > 0 || lost == 0) return;
  pass.event("Warning", "ProgressLost",
             "no checkpoint: training starts again at step 0, and " + std::to_string(lost) +
                 " completed steps are lost" +
                 (pass.spec().checkpoint_path.empty() ? "; set checkpoint.path to keep them" : ""),
             "Restart");
}

// Writes lastSwitch of the report to status: which plan is in force.
void show_switch(Pass& pass) {
  if (!pass.snapshot.report || !pass.snapshot.report->body.last_switch) return;
  const auto& last = *pass.snapshot.report->body.last_switch;
  auto& plan = pass.status.plan;
  if (last.revision != plan.revision || plan.applied_revision == plan.revision) return;
  if (last.outcome == protocol::Outcome::kApplied) {
    report_lost_progress(pass, last.step);
    plan.applied_revision = plan.revision;
    plan.applied_step = last.step;
    pass.guarded = true;
    report_resized(pass);
    return;
  }
  // The condition shows whether the event was sent.
  const auto* replan = api::find_condition(pass.job().status.conditions, "ReplanInProgress");
  if (replan != nullptr && replan->status == "False") return;
  pass.event("Warning", "PlanRefused",
             "revision " + std::to_string(plan.revision) + ": " + last.reason, "Plan");
  adaptation::refused(pass.adaptation.memory, pass.newest,
                      static_cast<std::uint32_t>(plan.revision));
}

int mean_share(const schedule::Plan& plan) {
  const int replicas = std::max(1, plan.replica_count());
  const int all = std::accumulate(plan.micro_batches.begin(), plan.micro_batches.end(), 0);
  return (all + replicas / 2) / replicas;
}

// One entry for a stage of all replicas; group and node are those of replica 0.
api::StageStatus stage_view(const Pass& pass, const schedule::Plan& plan,
                            const schedule::RankPlace& rank) {
  const auto s = static_cast<std::size_t>(rank.stage);
  std::string group;
  for (const auto& slot : pass.slots) {
    if (slot.pod && slot.pod->meta.uid == rank.pod_uid) group = slot.group;
  }
  return {rank.stage,
          plan.replica_count(),
          plan.stages[s].first,
          plan.stages[s].last,
          plan.schedule.caps[s],
          group,
          rank.node};
}

void show_plan(Pass& pass) {
  auto& status = pass.status.plan;
  if (status.revision == 0) {
    pass.set("ReplanInProgress", "Unknown", "Initial", "no plan yet");
    return;
  }
  const bool made_now = status.revision != pass.job().status.plan.revision;  // adopt_plan shows it
  if (pass.plan != nullptr && !made_now) show_plan(pass, *pass.plan);
  if (status.applied_revision == status.revision) {
    pass.set("ReplanInProgress", "False", "Applied",
             "revision " + std::to_string(status.revision) + " is applied");
  } else if (pass.refused) {
    pass.set("ReplanInProgress", "False", "Applied",
             "revision " + std::to_string(status.revision) +
                 " was refused: " + pass.snapshot.report->body.last_switch->reason + "; revision " +
                 std::to_string(status.applied_revision) + " stays in force");
  } else {
    pass.set("ReplanInProgress", "True", status.trigger,
             "revision " + std::to_string(status.revision) + " is being applied");
  }
}

void show_ready(Pass& pass) {
  if (pass.refusal && pass.plan == nullptr)
    return pass.set("Ready", "False", "Invalid", pass.refusal->message);
  const bool restarting =
      std::ranges::any_of(pass.failures, [](const auto& failure) { return failure.recorded; }) ||
      (pass.status.plan.applied_revision > 0 && pass.is("WorkersReady", "False") &&
       registered_workers(pass, pass.needed_replicas) < needed_workers(pass));
  const auto& plan = pass.status.plan;
  const auto* workers = api::find_condition(pass.status.conditions, "WorkersReady");
  if (restarting) return pass.set("Ready", "False", "Restarting", workers->message);
  if (!pass.plan_lives && !pass.is("PodsScheduled", "True")) {
    const bool queued = pass.has_reason("PodsScheduled", kWaitsForQuota);
    return pass.set("Ready", "False", queued ? "Queued" : "Pending",
                    api::find_condition(pass.status.conditions, "PodsScheduled")->message);
  }
  if (plan.applied_revision == 0) return pass.set("Ready", "False", "Starting", workers->message);
  const bool pauses = plan.trigger != "Retune" && plan.trigger != "Manual";
  if (plan.applied_revision != plan.revision && pauses && !pass.refused) {
    return pass.set("Ready", "False", "Replanning",
                    "revision " + std::to_string(plan.revision) + " is being applied");
  }
  pass.set("Ready", "True", "Running", "training advances");
}

}  // namespace

std::string idle_text(const Pass& pass, const schedule::Plan& plan) {
  if (plan.idle.empty()) return "";
  constexpr std::size_t kNamed = 4;
  std::string names;
  for (std::size_t i = 0; i < std::min(plan.idle.size(), kNamed); ++i)
    names += (i == 0 ? "" : ", ") + plan.idle[i];
  if (plan.idle.size() > kNamed) names += ", ...";
  const std::size_t all = plan.idle.size() + plan.ranks.size();
  const int layers = pass.snapshot.members ? pass.snapshot.members->body.model.layers : 0;
  const bool too_many = layers > 0 && all > static_cast<std::size_t>(layers * plan.replica_count());
  return std::to_string(plan.idle.size()) + " of " + std::to_string(all) +
         " workers have no stage (" + names + ")" +
         (too_many ? ": the model has " + std::to_string(layers) + " layers" : "");
}

void show_plan(Pass& pass, const schedule::Plan& plan) {
  auto& status = pass.status.plan;
  status.k = plan.schedule.k;
  status.micro_batch_size = plan.schedule.micro_batch_size;
  status.micro_batches = mean_share(plan);
  status.stage_count = plan.stage_count();
  status.stages.clear();
  for (const auto& rank : plan.ranks) {
    if (rank.replica == 0) status.stages.push_back(stage_view(pass, plan, rank));
  }
}

// Silence alone causes no restart; WorkersReady becomes Unknown after member_silent.
bool silent(const Pass& pass) {
  const auto& report = pass.snapshot.report;
  return report ? pass.now() - report->received > pass.tunables.member_silent
                : pass.status.plan.applied_revision > 0 &&
                      pass.now() >= pass.snapshot.leading_since + kNewLeaderWaits;
}

// A worker that is done counts, because it was registered until its last step.
int registered_workers(const Pass& pass, int replicas) {
  int count = 0;
  for (const auto& slot : pass.slots) {
    if (slot.replica >= replicas || !slot.pod || worker_failed(*slot.pod)) continue;
    const bool done = worker_done(*slot.pod);
    count += done || (pass.snapshot.members &&
                      std::ranges::any_of(pass.snapshot.members->body.members, [&](const auto& m) {
                        return m.pod_uid == slot.pod->meta.uid;
                      }));
  }
  return count;
}

void show_acceptance(Pass& pass) {
  for (const char* type :
       {"Accepted", "PodsScheduled", "WorkersReady", "Ready", "Degraded", "ReplanInProgress",
        "NetworkMetricsAvailable", "Suspended", "Complete", "Failed", "Finished"}) {
    if (api::find_condition(pass.status.conditions, type) == nullptr)
      pass.set(type, "Unknown", "Pending", "");
  }
  if (pass.refusal) {
    pass.set("Accepted", "False", pass.refusal->reason, pass.refusal->message);
  } else if (!pass.accepted_note.empty()) {
    pass.set("Accepted", "True", "Accepted", pass.accepted_note);
  }
}

void show_conditions(Pass& pass) {
  show_acceptance(pass);
  if (!pass.has_reason("Suspended", "Resumed")) pass.set("Suspended", "False", "Resumed", "");
  show_groups(pass);
  show_switch(pass);
  show_scheduled(pass);
  show_workers(pass);
  show_plan(pass);
  show_network(pass);
  show_ready(pass);
}

}  // namespace weir::reconcile
