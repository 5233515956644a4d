// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/split.h"

#include <algorithm>
#include <numeric>

#include "worker/base/units.h"
#include "worker/schedule/families.h"
#include "worker/schedule/search_split.h"

namespace weir::planner {
namespace {

std::vector<schedule::HeldLimit> limits_of(const Setting& setting, const Layout& layout,
                                           int micro_batches) {
  std::vector<schedule::HeldLimit> limits;
  const schedule::Schedule whole = schedule_of(setting, layout);
  for (std::size_t s = 0; s < layout.stages(); ++s) {
    schedule::HeldLimit limit{.most = micro_batches};
    const std::int64_t bytes =
        setting.kinds[static_cast<std::size_t>(layout.kinds[s])].usable_bytes;
    limit.known = bytes > 0;
    if (limit.known) {
      limit.most = schedule::most_held(split_memory(setting, layout, s), whole, static_cast<int>(s),
                                       bytes, micro_batches);
    }
    limits.push_back(limit);
  }
  return limits;
}

int held(const Layout& layout) {
  const std::vector<int>& most = layout.split->held;
  return std::accumulate(most.begin(), most.end(), 0);
}

}  // namespace

Layout with_best_split(const Setting& setting, const Layout& layout, EventBudget& budget) {
  const Request& request = *setting.request;
  if (!request.split || !request.caps.empty() || !schedule::rules_of(request.family).tuned) {
    return layout;
  }
  const Pipeline pipeline = pipeline_of(setting, layout, 0);
  const schedule::PipelineModel model = simulated_model(pipeline);
  if (!schedule::has_weights(model.stages)) return layout;
  std::vector<std::chrono::nanoseconds> updates;
  for (const StageCost& stage : pipeline.stages) updates.push_back(from_seconds(stage.update));
  const int least = *std::ranges::min_element(setting.micro_batches);
  std::vector<Layout> choices;
  for (auto& most : schedule::held_choices(layout.caps, limits_of(setting, layout, least))) {
    // Two steps to choose what is postponed, one to judge.
    if (!budget.spend(setting, layout) || !budget.spend(setting, layout)) break;
    Layout choice = layout;
    choice.split = schedule::with_split(schedule_of(setting, layout), std::move(most),
                                        request.dispatch, least, model, updates)
                       .split;
    choice.whole_seconds = layout.seconds;
    choice.seconds = simulated_step(setting, choice);
    if (choice.seconds < layout.seconds && fits(setting, choice)) {
      choices.push_back(std::move(choice));
    }
  }
  if (choices.empty()) return layout;
  const double shortest = std::ranges::min_element(choices, {}, &Layout::seconds)->seconds;
  std::erase_if(choices, [&](const Layout& choice) {
    return choice.seconds > shortest * (1 + request.tie_of_k + 1e-9);
  });
  Layout best = *std::ranges::min_element(
      choices, [](const Layout& a, const Layout& b) { return held(a) < held(b); });
  // Backwards stay whole where a split gains next to nothing.
  return best.seconds < layout.seconds * (1 - request.tie_of_k) ? best : layout;
}

}  // namespace weir::planner
