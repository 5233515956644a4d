// SPDX-License-Identifier: Apache-2.0
// Where plans come from: the engines, each asked in its own terms, answer with layouts that have no
// servers yet. Inside the room only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/planner/graph/ideals.h"
#include "operator/planner/layout.h"

namespace weir::planner {

struct EngineAnswer {
  std::vector<Layout> layouts;  // without devices, best first; one per cut and k
  double value = 0;             // of the first, in the engine's formula
  double lower_bound = 0;       // no plan is faster in this formula
  bool complete = false;        // the bound holds for every plan, not only for those looked at
  bool optimal = false;
  std::string formula;
  SearchReport search;
};

// Links that the engines reckon with, between kinds; rings: inside each.
struct LinkTable {
  std::vector<std::vector<LinkRate>> links;
  std::vector<LinkRate> rings;
};
// No pair of devices has a better link: what follows from them is a bound.
LinkTable best_links(const Setting& setting);
// As `before`, but with what the boundaries of a placed layout got.
LinkTable achieved_links(const Setting& setting, const Layout& layout, LinkTable before);

std::vector<int> stage_counts(const Setting& setting);  // to try, rising; empty: none possible
std::vector<int> ks_of(const Request& request, int micro_batches);
std::vector<int> caps_of(const Request& request, CapRules rule, int stages, int micro_batches,
                         int k);

// The engines over one setting. certify = false: for the layouts alone; the bound may be weak.
Result<EngineAnswer> sync_layouts(const Setting& setting, const LinkTable& table,
                                  const Ideals& ideals, const Limits& limits, bool certify = true);
Result<EngineAnswer> bottleneck_layouts(const Setting& setting, const Limits& limits);
// The best plan by DAPPLE's score, placed and simulated (dapple/dapple.h); it chooses the replicas.
Result<PlanReport> plan_by_dapple(const Model& model, const Cluster& cluster,
                                  const Request& request);
// S stages with equally many layers on the first kinds that allow it (--compare even).
std::optional<Layout> even_layout(const Setting& setting, int stages);

}  // namespace weir::planner
