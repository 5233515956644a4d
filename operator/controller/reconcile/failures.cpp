// SPDX-License-Identifier: Apache-2.0
// The end of a job, and the failures of its workers: exit-code table, restart budget, one episode
// for one cause (operator.md 6).
#include "operator/controller/reconcile/pass.h"

namespace weir::reconcile {
namespace {

constexpr int kConfigurationExit = 2, kPeerLostExit = 80, kTerminatedExit = 143;
constexpr std::chrono::seconds kEarlySuccess{
    60};  // a worker may end that much before its coordinator

bool in_plan(const Pass& pass, const api::Pod& pod) {
  if (pass.plan == nullptr) return false;
  return std::any_of(pass.plan->ranks.begin(), pass.plan->ranks.end(),
                     [&](const auto& rank) { return rank.pod_uid == pod.meta.uid; });
}

bool disrupted(const api::Pod& pod) {
  return std::any_of(pod.conditions.begin(), pod.conditions.end(), [](const auto& c) {
    return c.type == "DisruptionTarget" && c.status == "True";
  });
}

const api::Node* node_of(const Pass& pass, const std::string& name) {
  for (const auto& node : pass.snapshot.nodes) {
    if (node->meta.name == name) return node.get();
  }
  return nullptr;
}

std::optional<Failure> failure_of(const Pass& pass, const Slot& slot) {
  Failure failure;
  failure.slot = &slot;
  if (!slot.pod) {
    // Never there before the first plan: not a failure, just not created yet.
    if (pass.plan == nullptr) return std::nullopt;
    failure.in_plan = true;
    failure.disruption = true;
    failure.text =
        "the pod of worker " + slot.group + "-" + std::to_string(slot.index_in_group) + " is gone";
    return failure;
  }
  const api::Pod& pod = *slot.pod;
  failure.in_plan = in_plan(pass, pod);
  failure.exit_code = pod.exit_code;
  const std::string who = "pod " + pod.meta.name + ": ";
  if (pod.phase == "Failed") {
    failure.disruption = disrupted(pod) || pod.meta.deleting || pod.exit_code == kTerminatedExit;
    failure.text = who + (pod.exit_code        ? "exit code " + std::to_string(*pod.exit_code)
                          : pod.reason.empty() ? "failed"
                                               : pod.reason);
    if (!pod.termination_reason.empty() && pod.termination_reason != "Error")
      failure.text += " (" + pod.termination_reason + ")";
    return failure;
  }
  if (pod.meta.deleting) {
    failure.disruption = true;
    failure.text = who + "deleted";
    return failure;
  }
  if (pod.phase == "Succeeded" && pod.ended && pass.now() - *pod.ended > kEarlySuccess) {
    failure.text = who + "ended while the coordinator still runs";
    return failure;
  }
  const api::Node* node = pod.node.empty() ? nullptr : node_of(pass, pod.node);
  if (node != nullptr && !node->ready && node->not_ready_since) {
    const Time lost = *node->not_ready_since + pass.tunables.node_lost;
    if (pass.now() >= lost) {
      failure.disruption = true;
      failure.text = who + "node " + pod.node + " is not ready";
      return failure;
    }
  }
  return std::nullopt;
}

// True when a restart was recorded after this failure: then it is acted on, not counted again.
bool recorded(const Pass& pass, const Failure& failure) {
  const auto& last = pass.status.last_restart_time;
  if (!last) return false;
  if (failure.in_plan) return pass.status.plan.time && *last >= *pass.status.plan.time;
  return failure.slot->pod && failure.slot->pod->meta.created <= *last;
}

std::string tail(const std::string& text) {
  const auto end = text.find_last_not_of(" \n\r\t");
  if (end == std::string::npos) return "";
  const auto begin = text.find_last_of('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1,
                     end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

const Failure& cause_of(const std::vector<const Failure*>& fresh) {
  for (const auto* failure : fresh) {
    if (failure->exit_code != kPeerLostExit) return *failure;
  }
  return *fresh.front();
}

}  // namespace

void fail_job(Pass& pass, const std::string& reason, const std::string& message) {
  pass.set("Failed", "True", reason, message);
  pass.set("Ready", "False", "Failed", message);
  pass.status.completion_time = pass.now();
  pass.guarded = true;
  pass.event("Warning", "Failed", reason + ": " + message, "Fail");
}

bool handle_end(Pass& pass) {
  const auto& coordinator = pass.slots.front().pod;
  if (coordinator && coordinator->phase == "Succeeded") {
    const auto& report = pass.snapshot.report;
    const std::string text =
        report ? "all " + std::to_string(report->body.total_steps) + " steps are done"
               : "the coordinator has finished";
    pass.set("Complete", "True", "Succeeded", text);
    pass.set("Ready", "False", "Complete", text);
    pass.status.completion_time = pass.now();
    pass.guarded = true;
    pass.event("Normal", "Completed", text, "Complete");
    return true;
  }
  for (const auto& slot : pass.slots) {
    if (auto failure = failure_of(pass, slot)) pass.failures.push_back(std::move(*failure));
    if (slot.pod && !slot.pod->node.empty()) {
      const api::Node* node = node_of(pass, slot.pod->node);
      if (node != nullptr && !node->ready && node->not_ready_since)
        pass.wake_at(*node->not_ready_since + pass.tunables.node_lost);
    }
  }
  for (const auto& failure : pass.failures) {
    if (failure.exit_code != kConfigurationExit) continue;
    const std::string last = tail(failure.slot->pod->termination_message);
    fail_job(pass, "ConfigurationError", failure.text + (last.empty() ? "" : ": " + last));
    return true;
  }
  return false;
}

bool handle_failures(Pass& pass) {
  std::vector<const Failure*> fresh;
  for (const auto& failure : pass.failures) {
    if (!recorded(pass, failure)) fresh.push_back(&failure);
  }
  if (fresh.empty()) return false;
  const Failure& cause = cause_of(fresh);
  // An hour of progress gives the budget back.
  if (pass.status.last_restart_time && pass.is("Ready", "True") &&
      pass.now() - *pass.status.last_restart_time > pass.tunables.budget_reset) {
    pass.status.restart_budget_used = 0;
  }
  if (!cause.disruption && pass.status.restart_budget_used >= pass.spec().max_restarts) {
    fail_job(pass, "RestartLimitExceeded",
             "failurePolicy.maxRestarts " + std::to_string(pass.spec().max_restarts) +
                 " is used up; last cause: " + cause.text);
    return true;
  }
  pass.status.restarts += 1;
  if (!cause.disruption) pass.status.restart_budget_used += 1;
  pass.status.last_restart_time = std::max(pass.now(), pass.status.plan.time.value_or(pass.now()));
  pass.guarded = true;
  pass.set("Ready", "False", "Restarting", cause.text);
  pass.set("WorkersReady", "False", "WorkerLost", cause.text);
  pass.event("Warning", "WorkerLost", cause.text, "Restart");
  pass.event("Warning", "Restarting",
             "restart " + std::to_string(pass.status.restarts) + " (budget used " +
                 std::to_string(pass.status.restart_budget_used) + " of " +
                 std::to_string(pass.spec().max_restarts) + "): " + cause.text,
             "Restart");
  return true;
}

}  // namespace weir::reconcile
