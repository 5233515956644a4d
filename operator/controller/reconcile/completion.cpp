// SPDX-License-Identifier: Apache-2.0
// Has the job done all its steps? The exit of the coordinator's trainer says so. Pods have no
// finalizer, for a namespace must go even when no operator is there; so a job may end, and its pods
// be removed, while nobody looks. Then what is known without them decides: a job that has finished
// is not trained again.
#include <algorithm>
#include <cstdlib>

#include "operator/controller/reconcile/pass.h"

namespace weir::reconcile {
namespace {

// Steps may be faster than those measured.
constexpr double kFastestStep = 0.5;

// The coordinator's last word of how far it is, from itself or as status has kept it.
struct LastWord {
  std::int64_t step = 0, total_steps = 0, checkpoint_step = -1;
  double step_seconds = 0;  // 0: unknown
  std::optional<Time> time;
};

double seconds_of(const std::string& text) {
  return std::strtod(text.c_str(), nullptr);
}

LastWord last_word(const Pass& pass) {
  const double batch = pass.spec().global_batch;
  const auto& kept = pass.job().report;
  LastWord word{kept.step, kept.total_steps, kept.last_checkpoint_step.value_or(-1), 0,
                kept.last_report_time};
  double rate = seconds_of(kept.samples_per_second);
  if (const auto& report = pass.snapshot.report) {
    word = {report->body.step, report->body.total_steps, report->body.last_checkpoint_step, 0,
            report->received};
    rate = report->body.samples_per_second;
  }
  word.step_seconds = rate > 0 ? batch / rate : seconds_of(pass.status.plan.predicted_step_seconds);
  return word;
}

// The pods of the plan were neither stopped nor replaced by us.
bool left_alone(const Pass& pass) {
  const auto& status = pass.status;
  if (status.plan.applied_revision == 0 || !status.plan.time) return false;
  if (pass.has_reason("Suspended", "Suspending") || pass.is("Suspended", "True")) return false;
  return !status.last_restart_time || *status.last_restart_time < *status.plan.time;
}

}  // namespace

std::optional<std::string> finished(const Pass& pass) {
  const auto& coordinator = pass.slots.front().pod;
  const auto& report = pass.snapshot.report;
  if (coordinator && worker_done(*coordinator)) {
    return report ? "all " + std::to_string(report->body.total_steps) + " steps are done"
                  : "the coordinator has finished";
  }
  if (coordinator || !left_alone(pass)) return std::nullopt;
  // A worker ends with 0 only after the last step.
  const auto pods = std::count_if(pass.slots.begin(), pass.slots.end(),
                                  [](const Slot& slot) { return slot.pod != nullptr; });
  const auto done = std::count_if(pass.slots.begin(), pass.slots.end(), [](const Slot& slot) {
    return slot.pod && worker_done(*slot.pod);
  });
  if (pods > 0 && done == pods)
    return "the coordinator is gone; the other workers have done the last step";
  const LastWord word = last_word(pass);
  const bool saved =
      pass.spec().checkpoint_path.empty() || word.checkpoint_step >= word.total_steps;
  if (pods == 0 && word.total_steps > 0 && word.step >= word.total_steps && saved)
    return "all " + std::to_string(word.total_steps) + " steps were done before the pods went";
  return std::nullopt;
}

std::optional<std::string> end_unknown(const Pass& pass) {
  // With a checkpoint the next pods say whether it was done: then they end at once.
  if (!pass.spec().checkpoint_path.empty() || !left_alone(pass)) return std::nullopt;
  const bool any = std::any_of(pass.slots.begin(), pass.slots.end(),
                               [](const Slot& slot) { return slot.pod != nullptr; });
  if (any) return std::nullopt;
  const LastWord word = last_word(pass);
  const Time since = word.time.value_or(*pass.status.plan.time);
  const std::chrono::duration<double> unseen = pass.now() - since;
  const auto left = static_cast<double>(word.total_steps - word.step);
  if (left * word.step_seconds * kFastestStep > unseen.count()) return std::nullopt;
  return "all pods went unseen, " + std::to_string(static_cast<std::int64_t>(unseen.count())) +
         " s after the last report (step " + std::to_string(word.step) + " of " +
         std::to_string(word.total_steps) +
         "): training may have finished, and without a checkpoint nothing tells; make the job "
         "again "
         "to train again, with checkpoint.path to keep what it does";
}

}  // namespace weir::reconcile
