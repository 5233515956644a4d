// SPDX-License-Identifier: Apache-2.0
// What users see: conditions, counts and progress (api.md 6).
#include <cmath>
#include <limits>

#include "operator/controller/reconcile/pass.h"

namespace weir::reconcile {
namespace {

std::string pending_reason(const api::Pod& pod) {
  for (const auto& condition : pod.conditions) {
    if (condition.type == "PodScheduled" && condition.status == "False") return condition.message;
  }
  if (!pod.waiting_reason.empty() && pod.waiting_reason != "ContainerCreating")
    return pod.waiting_reason + ": " + pod.waiting_message;
  return "";
}

bool scheduled(const Slot& slot) {
  return slot.pod && !slot.pod->node.empty();
}

void view_groups(Pass& pass) {
  pass.status.worker_groups.clear();
  for (const auto& group : pass.spec().worker_groups) {
    api::GroupStatus view;
    view.name = group.name;
    view.desired = group.count * pass.spec().data_parallel;
    for (const auto& slot : pass.slots) {
      if (slot.group != group.name || !slot.pod) continue;
      view.scheduled += scheduled(slot) && !pod_ended(*slot.pod) ? 1 : 0;
      view.ready += slot.pod->ready && !pod_ended(*slot.pod) ? 1 : 0;
      view.failed += slot.pod->phase == "Failed" ? 1 : 0;
      if (view.pending_reason.empty()) view.pending_reason = pending_reason(*slot.pod);
    }
    pass.status.worker_groups.push_back(std::move(view));
  }
}

int registered_workers(const Pass& pass) {
  if (!pass.snapshot.members) return 0;
  int count = 0;
  for (const auto& slot : pass.slots) {
    const auto& members = pass.snapshot.members->body.members;
    count += slot.pod && !pod_ended(*slot.pod) &&
             std::any_of(members.begin(), members.end(),
                         [&](const auto& m) { return m.pod_uid == slot.pod->meta.uid; });
  }
  return count;
}

void view_scheduled(Pass& pass) {
  std::string why;
  int missing = 0;
  for (const auto& slot : pass.slots) {
    if (scheduled(slot)) continue;
    ++missing;
    if (slot.pod && why.empty()) why = pending_reason(*slot.pod);
  }
  if (missing == 0)
    return pass.set("PodsScheduled", "True", "AllScheduled", "all pods have a node");
  const std::string count =
      std::to_string(missing) + " of " + std::to_string(pass.slots.size()) + " pods have no node";
  if (why.empty()) return pass.set("PodsScheduled", "Unknown", "Unschedulable", count + " yet");
  if (!pass.is("PodsScheduled", "False")) pass.event("Warning", "Unschedulable", why, "Schedule");
  pass.set("PodsScheduled", "False", "Unschedulable", count + ": " + why);
}

// Silence alone kills nothing: Unknown after member_silent (operator.md 6).
bool silent(const Pass& pass) {
  return pass.snapshot.report &&
         pass.now() - pass.snapshot.report->received > pass.tunables.member_silent;
}

void view_workers(Pass& pass) {
  const int registered = registered_workers(pass);
  const auto wanted = static_cast<int>(pass.slots.size());
  pass.status.workers_summary = std::to_string(registered) + "/" + std::to_string(wanted);
  if (!pass.failures.empty())
    return pass.set("WorkersReady", "False", "WorkerLost", pass.failures.front().text);
  if (registered < wanted) {
    bool pulling = false;
    bool starting = false;
    for (const auto& slot : pass.slots) {
      pulling = pulling || (slot.pod && slot.pod->waiting_reason.find("Pull") != std::string::npos);
      starting = starting || !slot.pod || !slot.pod->started;
    }
    const std::string text =
        std::to_string(registered) + " of " + std::to_string(wanted) + " workers have registered";
    if (pulling) return pass.set("WorkersReady", "False", "Pulling", text);
    if (starting) return pass.set("WorkersReady", "False", "Starting", text);
    const auto* scheduled = api::find_condition(pass.status.conditions, "PodsScheduled");
    const auto timeout = std::chrono::seconds(pass.spec().startup_timeout_seconds);
    if (scheduled != nullptr && scheduled->status == "True" &&
        pass.now() > scheduled->since + timeout) {
      return pass.set("WorkersReady", "False", "StartupTimedOut",
                      text + " after startupTimeoutSeconds " +
                          std::to_string(pass.spec().startup_timeout_seconds));
    }
    if (scheduled != nullptr && scheduled->status == "True")
      pass.wake_at(scheduled->since + timeout);
    return pass.set("WorkersReady", "False", "WaitingForRegistration",
                    text + "; workers must reach " + pass.snapshot.control_url +
                        " and port 7070 of the coordinator");
  }
  if (silent(pass))
    return pass.set("WorkersReady", "Unknown", "WorkerLost",
                    "no report from the coordinator; training may go on");
  if (pass.status.plan.revision == 0 ||
      pass.status.plan.applied_revision != pass.status.plan.revision) {
    return pass.set("WorkersReady", "False", "Starting", "the plan is not applied yet");
  }
  pass.set("WorkersReady", "True", "AllReady", "all workers run the current plan");
}

// Takes lastSwitch into status: which plan is in force.
void view_switch(Pass& pass) {
  if (!pass.snapshot.report || !pass.snapshot.report->body.last_switch) return;
  const auto& last = *pass.snapshot.report->body.last_switch;
  auto& plan = pass.status.plan;
  if (last.revision != plan.revision || plan.applied_revision == plan.revision) return;
  if (last.outcome == protocol::Outcome::kApplied) {
    plan.applied_revision = plan.revision;
    plan.applied_step = last.step;
    pass.guarded = true;
    return;
  }
  // Told once: the condition remembers it.
  const auto* replan = api::find_condition(pass.job().status.conditions, "ReplanInProgress");
  if (replan != nullptr && replan->status == "False") return;
  pass.event("Warning", "PlanRefused",
             "revision " + std::to_string(plan.revision) + ": " + last.reason, "Plan");
  auto& pending = pass.adaptation.pending;
  if (pending && pending->revision == plan.revision) {
    pass.adaptation.tuner.quarantine[pending->text] =
        std::numeric_limits<std::int64_t>::max();  // until members change
    pending.reset();
  }
}

void view_plan(Pass& pass) {
  auto& status = pass.status.plan;
  if (status.revision == 0) {
    pass.set("ReplanInProgress", "Unknown", "Initial", "no plan yet");
    return;
  }
  if (pass.plan != nullptr) {
    const auto& plan = *pass.plan;
    status.k = plan.schedule.k;
    status.micro_batch_size = plan.schedule.micro_batch_size;
    status.micro_batches = plan.micro_batches.empty() ? 0 : plan.micro_batches.front();
    status.stage_count = plan.stage_count();
    status.stages.clear();
    for (const auto& rank : plan.ranks) {
      const auto s = static_cast<std::size_t>(rank.stage);
      std::string group;
      for (const auto& slot : pass.slots) {
        if (slot.pod && slot.pod->meta.uid == rank.pod_uid) group = slot.group;
      }
      status.stages.push_back({rank.stage, 1, plan.stages[s].first, plan.stages[s].last,
                               plan.schedule.caps[s], group, rank.node});
    }
  }
  if (status.applied_revision == status.revision) {
    pass.set("ReplanInProgress", "False", "Applied",
             "revision " + std::to_string(status.revision) + " is applied");
  } else if (pass.refused) {
    pass.set("ReplanInProgress", "False", "Applied",
             "revision " + std::to_string(status.revision) +
                 " was refused: " + pass.snapshot.report->body.last_switch->reason + "; revision " +
                 std::to_string(status.applied_revision) + " goes on");
  } else {
    pass.set("ReplanInProgress", "True", status.trigger,
             "revision " + std::to_string(status.revision) + " is being applied");
  }
}

void view_network(Pass& pass) {
  using estimator::Freshness;
  const auto& estimates = pass.estimates;
  const bool off = pass.spec().adaptation.mode == "Off";
  if (off) {
    pass.set("NetworkMetricsAvailable", "False", "Disabled", "adaptation.mode is Off");
  } else if (estimates.freshness == Freshness::kFresh) {
    pass.set("NetworkMetricsAvailable", "True", "Fresh",
             std::to_string(estimates.links.size()) + " link directions measured");
  } else if (pass.status.plan.applied_revision == 0) {
    pass.set("NetworkMetricsAvailable", "Unknown", estimator::name(estimates.freshness),
             "training has not started");
  } else {
    if (pass.is("NetworkMetricsAvailable", "True")) {
      pass.event("Warning", "MetricsUnavailable",
                 std::string(estimator::name(estimates.freshness)) + ": " + estimates.detail,
                 "Adapt");
    }
    pass.set("NetworkMetricsAvailable", "False", estimator::name(estimates.freshness),
             estimates.detail);
  }
  const estimator::LinkEstimate* slow = nullptr;
  for (const auto& link : estimates.links) {
    if (link.preempted && (slow == nullptr || link.now < slow->now)) slow = &link;
  }
  if (slow != nullptr) {
    const std::string text = "link " + slow->from_node + "->" + slow->to_node + " " +
                             bits_per_second(slow->now) + " of " + bits_per_second(slow->baseline);
    if (!pass.is("Degraded", "True")) pass.event("Warning", "NetworkContended", text, "Observe");
    return pass.set("Degraded", "True", "NetworkContended", text);
  }
  const auto* degraded = api::find_condition(pass.status.conditions, "Degraded");
  if (degraded != nullptr && degraded->status == "True" && degraded->reason == "NetworkContended") {
    pass.event("Normal", "NetworkRecovered", "all links are back above 90 % of their baseline",
               "Observe");
  }
  if (degraded == nullptr || degraded->reason != "PredictedGainMissed" || pass.adaptation.pending) {
    pass.set("Degraded", pass.status.plan.applied_revision == 0 ? "Unknown" : "False", "AsPlanned",
             "");
  }
}

// The coordinator reports, and the step stands still for the progress deadline.
bool stalled(Pass& pass) {
  const auto& report = pass.snapshot.report;
  if (!report) return false;
  auto& state = pass.adaptation;
  if (report->body.step != state.last_step) {
    state.last_step = report->body.step;
    state.last_step_time = report->received;
  }
  const Time limit =
      state.last_step_time + std::chrono::seconds(pass.spec().progress_deadline_seconds);
  if (pass.now() <= limit) pass.wake_at(limit);
  return pass.now() > limit && !silent(pass);
}

void view_ready(Pass& pass) {
  if (pass.refusal && pass.plan == nullptr)
    return pass.set("Ready", "False", "Invalid", pass.refusal->message);
  const bool restarting =
      !pass.failures.empty() ||
      (pass.status.plan.applied_revision > 0 && pass.is("WorkersReady", "False") &&
       registered_workers(pass) < static_cast<int>(pass.slots.size()));
  const auto& plan = pass.status.plan;
  const auto* workers = api::find_condition(pass.status.conditions, "WorkersReady");
  if (restarting) return pass.set("Ready", "False", "Restarting", workers->message);
  if (!pass.is("PodsScheduled", "True")) {
    return pass.set("Ready", "False", "Pending",
                    api::find_condition(pass.status.conditions, "PodsScheduled")->message);
  }
  if (plan.applied_revision == 0) return pass.set("Ready", "False", "Starting", workers->message);
  const bool pauses = plan.trigger != "Retune" && plan.trigger != "Manual";
  if (plan.applied_revision != plan.revision && pauses && !pass.refused) {
    return pass.set("Ready", "False", "Replanning",
                    "revision " + std::to_string(plan.revision) + " is being applied");
  }
  if (stalled(pass)) {
    return pass.set("Ready", "False", "Stalled",
                    "no step completed for progressDeadlineSeconds " +
                        std::to_string(pass.spec().progress_deadline_seconds));
  }
  pass.set("Ready", "True", "Running", "training advances");
}

}  // namespace

void view_conditions(Pass& pass) {
  for (const char* type :
       {"Accepted", "PodsScheduled", "WorkersReady", "Ready", "Degraded", "ReplanInProgress",
        "NetworkMetricsAvailable", "Suspended", "Complete", "Failed"}) {
    if (api::find_condition(pass.status.conditions, type) == nullptr)
      pass.set(type, "Unknown", "Pending", "");
  }
  if (pass.refusal) {
    pass.set("Accepted", "False", pass.refusal->reason, pass.refusal->message);
  } else if (!pass.accepted_note.empty()) {
    pass.set("Accepted", "True", "Accepted", pass.accepted_note);
  }
  pass.set("Suspended", "False", "Resumed", "");
  view_groups(pass);
  view_switch(pass);
  view_scheduled(pass);
  view_workers(pass);
  view_plan(pass);
  view_network(pass);
  view_ready(pass);
}

void view_progress(Pass& pass) {
  const auto& old = pass.job().report;
  const bool network_moved = pass.estimates.freshness == estimator::Freshness::kFresh &&
                             pass.is("Degraded", "True") != (old.network_state == "Contended");
  const bool ended = pass.is("Complete", "True") || pass.is("Failed", "True");
  if (!pass.snapshot.report) return;
  if (old.last_report_time && !network_moved && !ended) {
    const Time due = *old.last_report_time + pass.tunables.progress_status;
    if (pass.now() < due) return pass.wake_at(due);
  }
  const auto& report = pass.snapshot.report->body;
  api::ReportStatus view;
  view.has_progress = true;
  view.step = report.step;
  view.total_steps = report.total_steps;
  view.percentage =
      report.total_steps > 0 ? static_cast<int>(100 * report.step / report.total_steps) : 0;
  view.samples_per_second = number(report.samples_per_second, 1);
  view.loss = std::isfinite(report.loss) ? number(report.loss, 4) : "";
  view.bubble_percent = percent(report.bubble_ratio);
  if (report.samples_per_second > 0) {
    const double left =
        static_cast<double>(report.total_steps - report.step) * pass.spec().global_batch;
    view.estimated_remaining_seconds = static_cast<std::int64_t>(left / report.samples_per_second);
  }
  view.last_step_time = report.step != old.step || !old.last_step_time
                            ? pass.snapshot.report->received
                            : *old.last_step_time;
  view.last_report_time = pass.now();
  view.sync_mode = "Exact";
  if (pass.plan != nullptr) view.micro_batch_shares = pass.plan->micro_batches;
  const bool fresh = pass.estimates.freshness == estimator::Freshness::kFresh;
  view.network_state = !fresh ? "Unknown" : pass.is("Degraded", "True") ? "Contended" : "Healthy";
  view.last_sample_time = pass.estimates.last_sample;
  auto links = pass.estimates.links;
  std::sort(links.begin(), links.end(), [](const auto& a, const auto& b) { return a.now < b.now; });
  constexpr std::size_t kWorst = 16;
  for (const auto& link : links) {
    if (view.worst_links.size() == kWorst || link.now <= 0) continue;
    const bool forward = link.link.direction == estimator::Direction::kForward;
    api::WorstLink worst;
    worst.from_node = link.from_node;
    worst.to_node = link.to_node;
    worst.from_stage = forward ? link.link.boundary : link.link.boundary + 1;
    worst.to_stage = forward ? link.link.boundary + 1 : link.link.boundary;
    worst.bandwidth = bits_per_second(link.now);
    worst.baseline = link.baseline > 0 ? bits_per_second(link.baseline) : "";
    worst.since = link.since;
    view.worst_links.push_back(std::move(worst));
  }
  pass.act(PatchReport{std::move(view)});
  if (!ended) pass.wake_at(pass.now() + pass.tunables.progress_status);
}

}  // namespace weir::reconcile
