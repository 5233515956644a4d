// SPDX-License-Identifier: Apache-2.0
#include "operator/facts/measured_times.h"

#include <algorithm>

#include "worker/base/units.h"

namespace weir::facts {
namespace {

// Seconds of the newest step, from the reports of the first stages. Replicas may take different
// times, so their rates are added.
double newest_step_seconds(const Facts& facts) {
  const auto& members = facts.report->members;
  double samples_per_second = 0;
  for (const auto& rank : facts.plan->ranks) {
    if (rank.stage != 0) continue;
    const auto member =
        std::ranges::find_if(members, [&](const auto& other) { return other.pod == rank.pod; });
    if (member == members.end() || member->step_seconds <= 0) return 0;
    const int samples = facts.plan->micro_batches[static_cast<std::size_t>(rank.replica)] *
                        facts.plan->schedule.micro_batch_size;
    samples_per_second += samples / member->step_seconds;
  }
  return samples_per_second > 0 ? facts.spec.global_batch / samples_per_second : 0;
}

}  // namespace

double recent_step_seconds(const Facts& facts) {
  if (facts.report == nullptr || facts.report->samples_per_second <= 0) return 0;
  return facts.spec.global_batch / facts.report->samples_per_second;
}

void note_step(const Facts& facts, History& history) {
  auto& seen = history.steps;
  if (history.steps_revision != facts.plan->revision) seen.clear();
  history.steps_revision = facts.plan->revision;
  const auto step = facts.report->step;
  const double seconds = newest_step_seconds(facts);
  if (seconds <= 0 || (!seen.empty() && seen.back().step == step)) return;
  seen.push_back({step, seconds, facts.reported});
  if (seen.size() > kOutcomeSteps) seen.erase(seen.begin());
}

double sampled_step_seconds(const Facts& facts) {
  const double recent = recent_step_seconds(facts);
  const auto& times = facts.estimates.rates.times;
  const std::size_t used = std::min<std::size_t>(times.size(), kUsedScrapes);
  if (used == 0) return recent;
  const Time begin = times[times.size() - used];
  if (facts.now - begin >= kOutcomeSteps * std::chrono::duration<double>(recent)) return recent;
  const auto& seen = facts.history->steps;
  double seconds = 0;
  int count = 0;
  for (auto step = seen.rbegin(); step != seen.rend() && step->seen >= begin; ++step) {
    seconds += step->seconds;
    ++count;
  }
  return count > 0 ? seconds / count : recent;
}

const estimator::ReplicaEstimates& replicas_measured(const Facts& facts) {
  static const estimator::ReplicaEstimates kNothing;
  return facts.estimates.replicas_revision == facts.plan->revision ? facts.estimates.replicas
                                                                   : kNothing;
}

schedule::Plan of_replica(const schedule::Plan& plan, int replica) {
  schedule::Plan one = plan;
  one.ranks.clear();
  for (auto rank : plan.ranks) {
    if (rank.replica != replica) continue;
    rank.replica = 0;
    one.ranks.push_back(std::move(rank));
  }
  return one;
}

std::vector<schedule::StageTime> stage_times(const Facts& facts, const schedule::Plan& one,
                                             const planner::PipelineCosts& costs) {
  const bool splits = one.schedule.split.has_value();
  const auto take = [&](const std::pair<double, double>& seconds, schedule::StageTime& stage) {
    const schedule::StageTime profiled = stage;
    const auto under_way =
        splits ? profiled.backward_input + profiled.backward_weights : profiled.backward;
    const double factor = under_way.count() > 0 ? seconds.second / to_seconds(under_way) : 0;
    const auto scaled = [&](std::chrono::nanoseconds time) {
      return from_seconds(to_seconds(time) * factor);
    };
    stage = {
        .forward = from_seconds(seconds.first),
        .backward = splits && factor > 0 ? scaled(profiled.backward) : from_seconds(seconds.second),
        .backward_input =
            factor > 0 ? scaled(profiled.backward_input) : from_seconds(seconds.second),
        .backward_weights = scaled(profiled.backward_weights)};
  };
  const auto& all = facts.estimates.stage_seconds;
  std::vector<schedule::StageTime> stages = costs.stages;
  for (int s = 0; s < one.stage_count(); ++s) {
    if (!all.contains(s)) return costs.stages;  // measured and profiled times must not be mixed
  }
  for (int s = 0; s < one.stage_count(); ++s) {
    take(all.at(s), stages[static_cast<std::size_t>(s)]);
  }
  for (const auto& rank : one.ranks) {
    const auto own = facts.estimates.worker_seconds.find({rank.pod, rank.stage});
    if (own == facts.estimates.worker_seconds.end()) continue;
    const auto s = static_cast<std::size_t>(rank.stage);
    stages[s] = costs.stages[s];
    take(own->second, stages[s]);
  }
  return stages;
}

bool replicas_known(const Facts& facts) {
  return !replicas_measured(facts).speeds.empty();
}

double measured_exposed_sync(const Facts& facts) {
  const double step = recent_step_seconds(facts);
  double slowest = 0, all = 0, rate = 0;
  for (const auto& [replica, speed] : replicas_measured(facts).speeds) {
    const auto p = static_cast<std::size_t>(replica);
    if (p >= facts.plan->micro_batches.size() || speed.seconds <= 0) return 0;
    slowest = std::max(slowest, speed.seconds);
    all += facts.plan->micro_batches[p];
    rate += facts.plan->micro_batches[p] / speed.seconds;
  }
  // With Partial no replica waits for the slowest one; the rest is partner selection and averaging.
  const double own = schedule::averages(*facts.plan) && rate > 0 ? all / rate : slowest;
  return step > 0 && own > 0 ? std::max(0.0, step - own) : 0;
}

}  // namespace weir::facts
