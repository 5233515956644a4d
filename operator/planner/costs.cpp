// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "operator/planner/chain.h"
#include "operator/planner/plan.h"

namespace weir::planner {

PipelineCosts costs_of(const Model& model, const Cluster& cluster, const schedule::Plan& plan) {
  PipelineCosts costs;
  if (model.layers.empty()) return costs;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const auto rank =
        std::find_if(plan.ranks.begin(), plan.ranks.end(), [&](const schedule::RankPlace& place) {
          return place.replica == 0 && place.stage == static_cast<int>(s);
        });
    const auto device =
        std::find_if(cluster.devices.begin(), cluster.devices.end(), [&](const Device& candidate) {
          return rank != plan.ranks.end() && candidate.pod == rank->pod &&
                 candidate.local == rank->local;
        });
    const bool known = device != cluster.devices.end();
    const Chain chain = chain_of(model, {known ? device->device_class : std::string()},
                                 plan.schedule.micro_batch_size);
    // A profile that came later may have fewer layers than the plan knows.
    const int first = std::clamp(plan.stages[s].first, 0, chain.layers - 1);
    const int end = std::clamp(plan.stages[s].last + 1, first + 1, chain.layers);
    costs.stages.push_back(stage_time(chain, 0, first, end));
    costs.static_bytes.push_back(static_bytes(chain, first, end));
    costs.stash_bytes.push_back(stash_bytes(chain, first, end));
    if (s + 1 < plan.stages.size()) {
      costs.boundary_bytes.push_back(chain.cut[static_cast<std::size_t>(end)]);
    }
    costs.memory_limit.push_back(known ? device->memory_bytes : 0);
  }
  return costs;
}

}  // namespace weir::planner
