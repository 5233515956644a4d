// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/search_split.h"

#include <algorithm>
#include <utility>

#include "worker/base/check.h"

namespace weir::schedule {
namespace {

using std::chrono::nanoseconds;

// The time from the start of a step to its end, sums over replicas included.
nanoseconds step_with_sums(const Schedule& schedule, int micro_batches, const PipelineModel& model,
                           std::span<const nanoseconds> sums) {
  const auto timeline = simulate(schedule, micro_batches, model);
  if (!timeline) return nanoseconds::max();
  nanoseconds step = timeline->step;
  for (std::size_t s = 0; s < sums.size(); ++s) {
    step = std::max(step, end_of(*timeline, s) + sums[s]);
  }
  return step;
}

// An idle stage begins a W, and an input that arrives a moment later waits for all of it. Two ops
// that end at the very same time in a simulation do so nowhere else, so plans are compared where
// messages come later by this part of the longest op.
constexpr int kLatePart = 100;

PipelineModel with_late_messages(const PipelineModel& model) {
  nanoseconds longest{0};
  for (const StageTime& stage : model.stages) {
    longest = std::max({longest, stage.forward, stage.backward_input, stage.backward_weights});
  }
  PipelineModel late = model;
  for (auto* links : {&late.forward, &late.backward}) {
    for (LinkModel& link : *links) link.latency += longest / kLatePart;
  }
  return late;
}

std::string list(const std::vector<int>& values) {
  std::string text;
  for (const int value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  const bool equal =
      std::ranges::all_of(values, [&](int value) { return value == values.front(); });
  return equal && !values.empty() ? std::to_string(values.front()) : text;
}

}  // namespace

bool has_weights(std::span<const StageTime> stages) {
  return std::ranges::any_of(
      stages, [](const StageTime& stage) { return stage.backward_weights > nanoseconds(0); });
}

std::vector<std::vector<int>> held_choices(std::span<const int> caps,
                                           std::span<const HeldLimit> limits) {
  WEIR_CHECK(caps.size() == limits.size() && !caps.empty(), "a limit for every stage");
  std::vector<int> same(caps.begin(), caps.end()), fullest, most;
  for (std::size_t s = 0; s < caps.size(); ++s) {
    if (limits[s].most < caps[s]) return {};
    fullest.push_back(std::min(caps.front(), limits[s].most));
    most.push_back(limits[s].known ? limits[s].most : fullest.back());
  }
  std::vector<std::vector<int>> choices{std::move(same)};
  for (std::vector<int>* held : {&fullest, &most}) {
    if (std::ranges::find(choices, *held) == choices.end()) choices.push_back(std::move(*held));
  }
  return choices;
}

Schedule with_split(Schedule schedule, std::vector<int> held, Dispatch dispatch, int micro_batches,
                    const PipelineModel& model, std::span<const nanoseconds> sums) {
  std::vector<nanoseconds> links;
  for (const LinkModel& link : model.backward) links.push_back(link.transfer + link.latency);
  Split later{.held = held,
              .postponed = most_postponed(model.stages, links, schedule.caps, held, sums)};
  for (int& postponed : later.postponed) postponed = std::min(postponed, micro_batches);
  schedule.dispatch = dispatch;
  schedule.split = Split{.held = std::move(held), .postponed = std::vector<int>(later.held.size())};
  if (later == *schedule.split) return schedule;
  Schedule postponing = schedule;
  postponing.split = std::move(later);
  const PipelineModel late = with_late_messages(model);
  const bool shorter = step_with_sums(postponing, micro_batches, late, sums) <
                       step_with_sums(schedule, micro_batches, late, sums);
  return shorter ? postponing : schedule;
}

std::string describe(const Split& split) {
  const bool none = std::ranges::all_of(split.postponed, [](int value) { return value == 0; });
  return "held " + list(split.held) + (none ? "" : " postponed " + list(split.postponed));
}

}  // namespace weir::schedule
