// SPDX-License-Identifier: Apache-2.0
#include "operator/explain/waterfall.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numeric>

#include "worker/base/units.h"

namespace weir::explain {
namespace {

using protocol::PartSeconds;
using protocol::StepPart;

schedule::PipelineModel without_links(schedule::PipelineModel model) {
  for (auto* links : {&model.forward, &model.backward}) {
    for (schedule::LinkModel& link : *links) link = {};
  }
  return model;
}

double sum(const PartSeconds& parts, std::initializer_list<StepPart> chosen) {
  double seconds = 0;
  for (const StepPart part : chosen) seconds += parts.of(part);
  return seconds;
}

}  // namespace

RankShares shares_of(const protocol::SegmentRank& rank) {
  const PartSeconds parts = rank.parts.value_or(PartSeconds{});
  const double all = std::accumulate(parts.seconds.begin(), parts.seconds.end(), 0.0);
  if (all <= 0) return {};
  const auto of_step = [all](double seconds) {
    return static_cast<int>(std::lround(100 * std::min(1.0, seconds / all)));
  };
  const auto percent = [&](std::initializer_list<StepPart> chosen) {
    return of_step(sum(parts, chosen));
  };
  RankShares shares{
      .busy = percent({StepPart::kForward, StepPart::kBackward, StepPart::kWeights,
                       StepPart::kOptimizer, StepPart::kData, StepPart::kCodec, StepPart::kClip}),
      .late = percent({StepPart::kForwardLate, StepPart::kGradientLate}),
      .link = percent({StepPart::kForwardLink, StepPart::kGradientLink}),
      .full = percent({StepPart::kFullLink, StepPart::kFullPeer}),
      .replicas = percent({StepPart::kSum, StepPart::kAverage}),
      .update = percent({StepPart::kNote, StepPart::kVerdict})};
  // All threads of the container together may have been throttled for longer than the step.
  if (rank.throttled_seconds > 0) shares.throttled = of_step(rank.throttled_seconds);
  return shares;
}

std::optional<Waterfall> waterfall(const Steps& steps) {
  const std::size_t stages = steps.now.stages.size();
  const bool fits = stages > 0 && steps.parts.size() == stages &&
                    steps.usual.stages.size() == stages && steps.step_seconds > 0 &&
                    steps.micro_batches > 0;
  if (!fits) return std::nullopt;
  const auto simulated = schedule::simulate(steps.schedule, steps.micro_batches, steps.now);
  if (!simulated || simulated->step.count() <= 0) return std::nullopt;

  Waterfall result{.step_seconds = steps.step_seconds + steps.save_seconds};
  double compute = -1;
  for (std::size_t s = 0; s < stages; ++s) {
    const double own = steps.micro_batches *
                       to_seconds(schedule::least_compute(steps.now.stages[s], steps.backwards));
    if (own <= compute) continue;
    compute = own;
    result.slowest_stage = static_cast<int>(s);
  }
  const auto least = [&](const schedule::PipelineModel& model) {
    return to_seconds(schedule::least_step(model, steps.micro_batches, steps.backwards));
  };
  const double alone = least(without_links(steps.now));
  const double usual = least(steps.usual), now = least(steps.now);
  const PartSeconds& first = steps.parts.front();
  // A forward loads its data, so the times of ops contain that of loading.
  const double data = std::min(
      compute, steps.parts[static_cast<std::size_t>(result.slowest_stage)].of(StepPart::kData));

  const auto set = [&](Line line, double seconds) {
    result.seconds[static_cast<std::size_t>(line)] = seconds;
  };
  set(Line::kCompute, compute - data);
  set(Line::kData, data);
  set(Line::kFillAndDrain, alone - compute);
  set(Line::kUsualLinks, usual - alone);
  set(Line::kSlowLinks, now - usual);
  set(Line::kOrder, to_seconds(simulated->step) - now);
  set(Line::kUpdate, sum(first, {StepPart::kOptimizer, StepPart::kSum, StepPart::kAverage,
                                 StepPart::kNote, StepPart::kVerdict, StepPart::kClip}));
  // Steps with a save are left out, but its copy may be told with the step before.
  set(Line::kInterruptions,
      steps.save_seconds + sum(first, {StepPart::kSwitch, StepPart::kValidation}));
  const double explained = std::accumulate(result.seconds.begin(), result.seconds.end(), 0.0);
  set(Line::kNotExplained, result.step_seconds - explained);
  return result;
}

}  // namespace weir::explain
