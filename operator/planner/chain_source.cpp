// SPDX-License-Identifier: Apache-2.0
// The chain engine of linear.h as a source of layouts: one replica, one rank per stage, layers in
// the model's own order. It answers where kinds are too many to count: each stage then takes the
// first rank that fits.
#include <algorithm>
#include <numeric>

#include "operator/planner/linear.h"
#include "operator/planner/slots.h"
#include "operator/planner/sources.h"

namespace weir::planner {
namespace {

constexpr std::int64_t kTableBudget = 600'000;  // of all problems: a few seconds
constexpr int kEveryStageCount = 16;            // beyond it every fourth or so is tried

int next_count(int stages, int most) {
  if (most <= kEveryStageCount || stages < 8) return stages + 1;
  return stages == most ? most + 1 : std::min(most, stages * 5 / 4);
}

Shape shape_of(const Setting& setting, int stages, int micro_batches, int k) {
  const Request& request = *setting.request;
  Layout layout;
  layout.caps = caps_of(request, CapRules::kKfkb, stages, micro_batches, k);
  layout.k = schedule::k_of_caps(layout.caps);
  return {.stages = stages,
          .micro_batches = micro_batches,
          .k = layout.k,
          .schedule = schedule_of(setting, layout)};
}

}  // namespace

Found chain_layouts(const Setting& setting) {
  const Slots slots = slots_of(*setting.cluster);
  const Chain chain = chain_of(*setting.model, slots.classes, setting.micro_batch_size);
  const int micro_batches = setting.micro_batches.front();
  const std::vector<int> counts = stage_counts(setting);
  const std::vector<int> ks = ks_of(*setting.request, micro_batches);
  std::vector<int> nodes(static_cast<std::size_t>(setting.dag.nodes));
  std::iota(nodes.begin(), nodes.end(), 0);
  const auto line = line_of(setting.dag, std::move(nodes));
  Found found;
  std::vector<std::pair<double, Layout>> all;
  const int most = counts.back();
  for (int stages = counts.front(); stages <= most; stages = next_count(stages, most)) {
    if (!std::binary_search(counts.begin(), counts.end(), stages)) continue;
    for (const int k : ks) {
      const Shape shape = shape_of(setting, stages, micro_batches, k);
      Problem problem{.chain = chain,
                      .slots = slots,
                      .shape = shape,
                      .links = std::vector<BoundaryLink>(static_cast<std::size_t>(stages - 1),
                                                         {slots.best, slots.best}),
                      .kinds = {}};
      int stuck = 0;
      const std::int64_t table = table_size(slots, stages, chain.layers);
      const auto problems = static_cast<std::int64_t>(counts.size() * ks.size());
      if (slots.kinds.size() > 1 && (table == 0 || table > kTableBudget / problems)) {
        problem.kinds = first_fit_kinds(slots, stages, &stuck);
      }
      const Solved solved = solve(problem);
      found.search.boundaries = std::max<std::int64_t>(found.search.boundaries, chain.layers - 1);
      for (const CostedCut& costed : solved.best) {
        Layout layout;
        layout.line = line;
        layout.first = costed.cut.first;
        layout.kinds = costed.cut.kinds;
        layout.ranks.assign(costed.cut.kinds.size(), 1);
        layout.k = shape.k;
        layout.caps = shape.schedule.caps;
        all.emplace_back(costed.seconds, std::move(layout));
      }
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [seconds, layout] : all) found.layouts.push_back(std::move(layout));
  if (!all.empty()) found.value = all.front().first;
  found.search.ideals = setting.dag.nodes;
  found.search.complete = false;
  return found;
}

}  // namespace weir::planner
