// SPDX-License-Identifier: Apache-2.0
// Decides whether the job has done all its steps. Usually the exit of the coordinator's trainer
// shows it. Pods have no finalizer, because a namespace must be deletable without an operator. So a
// job may end and its pods be deleted while no operator runs. Then the last report decides, because
// a job that has finished must not be trained again.
#include <algorithm>
#include <cstdlib>

#include "operator/controller/reconcile/lifecycle/lifecycle.h"

namespace weir::reconcile {
namespace {

// Later steps may be faster than the measured ones, by this factor at most.
constexpr double kFastestStep = 0.5;

// The coordinator's last known progress, from its report or from status.
struct LastReport {
  std::int64_t step = 0, total_steps = 0, checkpoint_step = -1;
  double step_seconds = 0;  // 0 = unknown
  std::optional<Time> time;
};

double seconds_of(const std::string& text) {
  return std::strtod(text.c_str(), nullptr);
}

LastReport last_report(const View& view, const Draft& draft) {
  const double batch = view.spec().global_batch;
  const auto& kept = view.job().report;
  LastReport last{kept.step, kept.total_steps, kept.last_checkpoint_step.value_or(-1), 0,
                  kept.last_report_time};
  double rate = seconds_of(kept.samples_per_second);
  if (const auto& report = view.snapshot.report) {
    last = {report->body.step, report->body.total_steps, report->body.last_checkpoint_step, 0,
            report->received};
    rate = report->body.samples_per_second;
  }
  last.step_seconds =
      rate > 0 ? batch / rate : seconds_of(draft.status.plan.predicted_step_seconds);
  return last;
}

// Whether the operator has neither stopped nor replaced the pods of the plan.
bool left_alone(const Draft& draft) {
  const auto& status = draft.status;
  if (status.plan.applied_revision == 0 || !status.plan.time) return false;
  if (draft.has_reason("Suspended", "Suspending") || draft.is("Suspended", "True")) return false;
  return !status.last_restart_time || *status.last_restart_time < *status.plan.time;
}

}  // namespace

std::optional<std::string> finished(const View& view, const Draft& draft) {
  const Slot* its_slot = coordinator_slot(view, draft);
  const auto coordinator = its_slot == nullptr ? nullptr : its_slot->pod;
  const auto& report = view.snapshot.report;
  if (coordinator && worker_done(*coordinator)) {
    return report ? "all " + std::to_string(report->body.total_steps) + " steps are done"
                  : "the coordinator has finished";
  }
  if (coordinator || !left_alone(draft)) return std::nullopt;
  // A worker ends with code 0 only after the last step.
  const auto pods =
      std::ranges::count_if(view.slots, [](const Slot& slot) { return slot.pod && !slot.spare; });
  const auto done = std::ranges::count_if(view.slots, [](const Slot& slot) {
    return slot.pod && !slot.spare && worker_done(*slot.pod);
  });
  if (pods > 0 && done == pods)
    return "the coordinator's pod is missing; the other workers have done the last step";
  const LastReport last = last_report(view, draft);
  const bool saved =
      view.spec().checkpoint_path.empty() || last.checkpoint_step >= last.total_steps;
  if (pods == 0 && last.total_steps > 0 && last.step >= last.total_steps && saved)
    return "all " + std::to_string(last.total_steps) +
           " steps were done before the pods were deleted";
  return std::nullopt;
}

std::optional<std::string> end_unknown(const View& view, const Draft& draft) {
  // With a checkpoint, new pods find out: if all steps are done, they end at once.
  if (!view.spec().checkpoint_path.empty() || !left_alone(draft)) return std::nullopt;
  const bool any =
      std::ranges::any_of(view.slots, [](const Slot& slot) { return slot.pod && !slot.spare; });
  if (any) return std::nullopt;
  const LastReport last = last_report(view, draft);
  const Time since = last.time.value_or(*draft.status.plan.time);
  const std::chrono::duration<double> unseen = view.now() - since;
  const auto left = static_cast<double>(last.total_steps - last.step);
  if (left * last.step_seconds * kFastestStep > unseen.count()) return std::nullopt;
  return "all pods were deleted unobserved, " +
         std::to_string(static_cast<std::int64_t>(unseen.count())) +
         " s after the last report (step " + std::to_string(last.step) + " of " +
         std::to_string(last.total_steps) +
         "): training may have finished, which is unknown without a checkpoint; create the job "
         "again to train again, and set checkpoint.path to keep its progress";
}

}  // namespace weir::reconcile
