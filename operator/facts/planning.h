// SPDX-License-Identifier: Apache-2.0
// Model, cluster and request of this job, and the plans that the planner makes for them.
#pragma once

#include <string>
#include <vector>

#include "operator/facts/facts.h"
#include "operator/planner/model/cluster.h"
#include "operator/planner/report.h"
#include "worker/base/result.h"

namespace weir::facts {

schedule::Family family_of(const std::string& type);  // type: spec.schedule.type
schedule::Dispatch dispatch_of(const api::JobSpec& spec);
// A worker that reads no plan document of this version; null = all read it, or none has registered.
const protocol::Member* older_than(const Facts& facts, int plan_version);
// Why plans have whole backwards: the spec, or a worker that reads no plan with split ones, or
// layers that do not split. "" = they may be split. model: null = unknown.
std::string why_whole(const Facts& facts, const planner::Model* model);
int least_share(const schedule::Plan& plan);  // fewest micro-batches of a replica
// The first replicas get the remainder.
std::vector<int> even_shares(int micro_batches, int replicas);

// The model of the profile that the spec names; nothing if there is none, then `why_not` says why.
// count_copies: where copies are needed, its state includes them.
std::optional<planner::Model> model_of(const Facts& facts, std::string& why_not,
                                       bool count_copies = true);
// Whether plans need memory for copies, too (recovery.neighborCopies On), in that of the devices.
bool needs_copies(const Facts& facts);
// The same model with the memory of a stage's snapshots, and of as large a neighbor's copies. The
// workers refuse a plan that lacks memory because the neighbor's are larger.
planner::Model with_copies(planner::Model model);
// By how much the stage that lacks most has too little memory for copies; made for a plan without
// them. "" = all have enough.
std::string lack_for_copies(const planner::PlanReport& report, const planner::Model& model);
// The members and the links as they were measured last.
planner::Cluster cluster_of(const Facts& facts);
// Clusters to plan for: with all remembered links, then without slow nodes, because the planner
// assumes that devices of a kind are equally connected.
std::vector<planner::Cluster> on_known_links(const std::vector<RememberedLink>& seen,
                                             planner::Cluster cluster);
// Plans for the members and the links as they are measured now. Results that do not depend on links
// are kept in the memo, so that planning again is fast. If several placements cost the same, the
// one that moves fewest ranks away from the plan in force is taken. plans: number of plans that
// this decision needs, which share the planner's limits.
Result<planner::PlanReport> plan_for_members(const Facts& facts, const planner::Model& model);
Result<planner::PlanReport> plan_for_members(const Facts& facts, const planner::Model& model,
                                             const planner::Cluster& cluster, int plans = 1);
// Keeps a plan's order to what spec and memory allow: lowers the caps of stages that ran out of
// memory (status.memory_limits), and makes backwards whole if they may not be split.
void limit_caps(const Facts& facts, schedule::Plan& plan);

}  // namespace weir::facts
