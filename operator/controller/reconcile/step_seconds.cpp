// SPDX-License-Identifier: Apache-2.0
// Measured step times for the outcome check and the tuner.
#include "operator/controller/reconcile/pass.h"

namespace weir::reconcile {
namespace {

// Seconds of the newest step, from the reports of the first stages. Replicas may take different
// times, so their rates are added.
double newest_step_seconds(const Pass& pass) {
  const auto& members = pass.snapshot.report->body.members;
  double samples_per_second = 0;
  for (const auto& rank : pass.plan->ranks) {
    if (rank.stage != 0) continue;
    const auto member =
        std::ranges::find_if(members, [&](const auto& other) { return other.pod == rank.pod; });
    if (member == members.end() || member->step_seconds <= 0) return 0;
    const int samples = pass.plan->micro_batches[static_cast<std::size_t>(rank.replica)] *
                        pass.plan->schedule.micro_batch_size;
    samples_per_second += samples / member->step_seconds;
  }
  return samples_per_second > 0 ? pass.spec().global_batch / samples_per_second : 0;
}

}  // namespace

double recent_step_seconds(const Pass& pass) {
  if (!pass.snapshot.report || pass.snapshot.report->body.samples_per_second <= 0) return 0;
  return pass.spec().global_batch / pass.snapshot.report->body.samples_per_second;
}

void note_step(Pass& pass) {
  auto& seen = pass.adaptation.seen_steps;
  if (pass.adaptation.seen_steps_revision != pass.plan->revision) seen.clear();
  pass.adaptation.seen_steps_revision = pass.plan->revision;
  const auto step = pass.snapshot.report->body.step;
  const double seconds = newest_step_seconds(pass);
  if (seconds <= 0 || (!seen.empty() && seen.back().step == step)) return;
  seen.push_back({step, seconds, pass.snapshot.report->received});
  if (seen.size() > kOutcomeSteps) seen.erase(seen.begin());
}

double sampled_step_seconds(const Pass& pass) {
  const double recent = recent_step_seconds(pass);
  const auto& times = pass.estimates.rates.times;
  const std::size_t used = std::min<std::size_t>(times.size(), tuner::Settings{}.used_scrapes);
  if (used == 0) return recent;
  const Time begin = times[times.size() - used];
  if (pass.now() - begin >= kOutcomeSteps * std::chrono::duration<double>(recent)) return recent;
  const auto& seen = pass.adaptation.seen_steps;
  double seconds = 0;
  int count = 0;
  for (auto step = seen.rbegin(); step != seen.rend() && step->seen >= begin; ++step) {
    seconds += step->seconds;
    ++count;
  }
  return count > 0 ? seconds / count : recent;
}

}  // namespace weir::reconcile
