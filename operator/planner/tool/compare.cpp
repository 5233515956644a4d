// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/tool/compare.h"

#include <algorithm>

#include "operator/planner/cache.h"
#include "operator/planner/decide.h"
#include "operator/planner/engines.h"
#include "operator/planner/setting.h"

namespace weir::planner {
namespace {

Result<std::vector<Layout>> layouts_of(const Setting& setting, const Limits& limits, Rival rival,
                                       int stages) {
  Request theirs = *setting.request;
  Setting there = setting;
  there.request = &theirs;
  switch (rival) {
    case Rival::kPipedream: {
      if (setting.kinds.size() != 1) {
        return invalid("PipeDream's planner knows one class of devices");
      }
      theirs.compat = Compat::kPipedream;
      WEIR_TRY(EngineAnswer answer, bottleneck_layouts(there, limits));
      return std::move(answer.layouts);
    }
    case Rival::kDappleFormula: {
      theirs.compat = Compat::kSync0;
      WEIR_TRY(EngineAnswer answer,
               sync_layouts(there, best_links(there), *ideals_for(there, limits, nullptr), limits));
      return std::move(answer.layouts);
    }
    case Rival::kEven:
      break;
  }
  std::optional<Layout> layout = even_layout(there, stages);
  if (!layout) return invalid("no rank for some stage");
  return std::vector<Layout>{*std::move(layout)};
}

}  // namespace

const char* name(Rival rival) {
  switch (rival) {
    case Rival::kPipedream:
      return "pipedream";
    case Rival::kDappleFormula:
      return "dapple-formula";
    case Rival::kEven:
      break;
  }
  return "even";
}

Comparison compare(const Model& model, const Cluster& cluster, const Request& request,
                   const Limits& limits, Rival rival, const PlanReport& ours) {
  Comparison result;
  result.name = name(rival);
  const placement::Topology topology(cluster);
  Request asked = request;
  asked.compat = Compat::kNone;
  asked.objective = Objective::kSync;
  auto setting = setting_of(model, cluster, asked, topology, ours.plan.schedule.micro_batch_size);
  if (!setting) {
    result.why_not = setting.error().message;
    return result;
  }
  auto layouts = layouts_of(*setting, limits, rival, ours.plan.stage_count());
  if (!layouts) {
    result.why_not = layouts.error().message;
    return result;
  }
  // Their best cut only.
  layouts->resize(1);
  PlacementBudget placements(limits);
  if (!place(*setting, layouts->front(), true, placements)) {
    result.why_not = "not enough devices of a class";
    return result;
  }
  EventBudget budget(limits);
  Scored scored;
  simulate_all(*setting, *layouts, budget, scored);
  if (scored.by_k.empty()) {
    result.why_not = scored.why_not.empty() ? "does not fit" : scored.why_not.begin()->second;
    return result;
  }
  const auto best = std::ranges::min_element(scored.by_k, better);
  result.step_seconds = best->seconds;
  result.k = best->k;
  for (std::size_t s = 0; s < best->stages(); ++s) {
    result.stages.push_back({best->first[s], best->first[s + 1] - 1});
    result.ranks.push_back(best->ranks[s]);
  }
  return result;
}

}  // namespace weir::planner
