// SPDX-License-Identifier: Apache-2.0
// The cost of a failure: where training goes on, and which steps are done again.
#include <algorithm>

#include "operator/controller/reconcile/lifecycle/lifecycle.h"
#include "operator/controller/reconcile/status/status.h"
#include "worker/base/text.h"

namespace weir::reconcile {
namespace {

// Steps that were complete before a plan that begins at a checkpoint or at step 0. Processes that
// are all new do not know of them. Those in status do: of the last report before the restart, or if
// none was written, the step at which the former plan was applied.
std::int64_t lost_steps(const View& view, const Draft& draft, const protocol::LastSwitch& last) {
  const std::int64_t known = std::max(view.job().report.step, draft.status.plan.applied_step);
  return std::max({last.repeated_steps, known - last.step, std::int64_t{0}});
}

// If a plan begins at step 0 although steps were complete, it found neither a checkpoint nor a live
// replica.
void report_lost_progress(const View& view, Draft& draft, std::int64_t lost,
                          const std::string& why) {
  draft.event("Warning", "ProgressLost",
              "no checkpoint" + (why.empty() ? "" : ", and " + why) +
                  ": training starts again at step 0, and " + std::to_string(lost) +
                  " completed steps are lost" +
                  (view.spec().checkpoint_path.empty() ? "; set checkpoint.path to keep them" : ""),
              "Restart");
}

// A resume goes on from its checkpoint without a loss.
bool follows_resume(const Draft& draft) {
  const auto* suspended = api::find_condition(draft.status.conditions, "Suspended");
  const auto& restart = draft.status.last_restart_time;
  return !restart ||
         (suspended != nullptr && suspended->reason == "Resumed" && suspended->since >= *restart);
}

std::string recovered_text(const api::Recovery& recovery, std::int64_t revision,
                           std::int64_t moved_bytes) {
  std::string text = "revision " + std::to_string(revision) + ": training goes on at step " +
                     std::to_string(recovery.step) +
                     (recovery.source == "Peers"    ? " with what the workers hold"
                      : recovery.source == "Copies" ? " from copies in memory"
                                                    : " from the checkpoint");
  if (!recovery.reason.empty()) text += " (" + recovery.reason + ")";
  text += ", " + std::to_string(recovery.lost_steps) + " steps are done again, pause " +
          recovery.pause_seconds + " s";
  if (moved_bytes > 0) text += ", " + megabytes(moved_bytes) + " moved";
  return text;
}

// E.g. "replica 1 (gpt-gpu-2, gpt-gpu-3)".
std::string text_of(const std::vector<int>& replicas, const schedule::Plan& plan) {
  const auto with_pods = [&](int replica) {
    std::vector<std::string> pods;
    for (const schedule::RankPlace& rank : plan.ranks) {
      if (rank.replica == replica) pods.push_back(rank.pod);
    }
    return std::to_string(replica) + " (" + joined(pods, ", ") + ")";
  };
  return (replicas.size() == 1 ? "replica " : "replicas ") + joined(replicas, ", ", with_pods);
}

}  // namespace

void show_replicas(const View& view, Draft& draft) {
  const schedule::Plan* const plan = view.applied != nullptr ? view.applied : view.plan;
  if (!view.snapshot.report || plan == nullptr) return;
  const protocol::Report& report = view.snapshot.report->body;
  const auto& last = report.last_switch;
  std::vector<int> lost = report.lost_replicas;
  std::erase_if(lost, [&](int one) { return one < 0 || one >= plan->replica_count(); });
  auto& shown = draft.status.recovery.lost_replicas;
  const bool known = last && last->outcome == protocol::Outcome::kApplied;
  if (lost == shown || (lost.empty() && !known)) return;  // else a new coordinator
  shown = lost;
  const std::string all = std::to_string(plan->replica_count());
  const std::string train =
      std::to_string(plan->replica_count() - static_cast<int>(lost.size())) + " of " + all;
  const std::string from = " from step " + std::to_string(known ? last->step : report.step) + " on";
  if (lost.empty()) {
    draft.event("Normal", "ReplicasRestored", train + " replicas train" + from, "Restart");
    return;
  }
  const auto dead = dead_link_text(view);
  std::string text = train + " replicas train on without " + text_of(lost, *plan);
  if (dead) text += ": " + *dead;
  if (!schedule::averages(*plan)) {
    text += (dead ? "; they" : ", which lacks a worker: they");
    text += " compute its micro-batches" + from;
    if (known) text += ", pause " + number(last->pause_seconds, 2) + " s";
  }
  draft.event("Warning", "ReplicasReduced", text, "Restart");
}

void show_recovery(const View& view, Draft& draft, const protocol::LastSwitch& last) {
  using schedule::StateMove;
  auto& status = draft.status;
  const bool again = status.plan.applied_revision == status.plan.revision;
  status.recovery.incarnation = last.incarnation;
  // The coordinator decides where the state comes from if workers join again, or the plan says
  // Recover. Otherwise the plan decides, also for workers that do not tell.
  const StateMove wanted = view.newest != nullptr ? view.newest->state : StateMove::kCheckpoint;
  const bool told = again || wanted == StateMove::kRecover;
  const bool reads = (told ? last.state : wanted) == StateMove::kCheckpoint;
  const std::int64_t lost = reads || last.step == 0 || last.snapshots
                                ? lost_steps(view, draft, last)
                                : last.repeated_steps;
  if (last.step == 0 && lost > 0) report_lost_progress(view, draft, lost, last.reason);
  const bool restart = status.plan.trigger == schedule::name(schedule::Trigger::kRestart);
  if (!again && (!restart || follows_resume(draft))) return;
  status.recovery.lost_steps += lost;
  status.recovery.last = api::Recovery{
      .source = !reads          ? (last.snapshots ? "Copies" : "Peers")
                : last.step > 0 ? "Checkpoint"
                                : "Start",
      .reason = reads ? last.reason : "",
      .pause_seconds = number(last.pause_seconds, 2),
      .step = last.step,
      .lost_steps = lost,
      .time = view.now(),
  };
  if (last.step == 0) return;
  draft.event(reads && lost > 0 ? "Warning" : "Normal", "Recovered",
              recovered_text(*status.recovery.last, status.plan.revision, last.moved_bytes),
              "Restart");
}

}  // namespace weir::reconcile
