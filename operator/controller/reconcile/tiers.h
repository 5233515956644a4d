// SPDX-License-Identifier: Apache-2.0
// The tiers above retune: regroup makes a repartition (another rank map or cut; weights move
// between live workers), replace moves a worker to another node. Private to this room.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/controller/reconcile/pass.h"

namespace weir::reconcile {

// Considers both tiers; at most one acts. They follow the rules of adaptation/gate, and in mode
// Observe they only propose. decision: of tier retune in this pass, which makes no change. asked:
// annotation weir.dev/replan demands an evaluation.
void escalate(Pass& pass, const planner::Model& model, const costing::Input& input,
              const retune::Decision& decision, bool asked);
// Judges the last change of these tiers, reports its outcome, and rolls it back if steps became
// slower. True = a plan was made.
bool judge_tiers(Pass& pass);
bool tiers_enabled(const api::JobSpec& spec);
// Call it when the members change. All that depends on the old ranks is forgotten; cooldown clocks
// and links stay.
void forget_ranks(Pass& pass);

// repartition.cpp. The best repartition with all that is known of links; nothing = the plan in
// force is the best. Steps are simulated over the sampled rates.
std::optional<RepartitionProposal> best_repartition(const Pass& pass, const planner::Model& model,
                                                    const costing::Input& input,
                                                    double current_seconds);
bool same_ranks(const schedule::Plan& a, const schedule::Plan& b);             // and the same cut
std::string difference(const schedule::Plan& from, const schedule::Plan& to);  // text for messages
// The plan as a proposal, with its costs and step time on these links. Nothing if its ranks and cut
// are those of the plan in force, or if a link is unknown.
std::optional<RepartitionProposal> costed(const Pass& pass, const planner::Model& model,
                                          const planner::Cluster& cluster,
                                          const costing::Input& input, schedule::Plan plan);
// Weighs the proposal, and adopts it or reports it in mode Observe. True = it gains enough, even if
// it must wait.
bool consider_repartition(Pass& pass, double current_seconds, bool asked);
// Clusters to plan for: with all remembered links, then without slow nodes, because the planner
// assumes that devices of a kind are equally connected.
std::vector<planner::Cluster> on_known_links(const std::vector<facts::RememberedLink>& seen,
                                             planner::Cluster cluster);
// previous_cut.cpp. Call the first before a repartition is adopted, and the second at each
// evaluation. It returns true if it starts a retry of the previous cut.
void remember_previous_cut(Pass& pass, const RepartitionProposal& taken);
bool retry_previous_cut(Pass& pass, const planner::Model& model, const costing::Input& input,
                        double current_seconds);
// replace.cpp. Moves a worker away from the slowest node. True = it acted.
bool consider_replacement(Pass& pass, const planner::Model& model, const costing::Input& input,
                          double current_seconds, bool asked);
// A replacement of this pod is recorded, but the pod has not been made again yet.
bool leaves_its_node(const Pass& pass, const api::Pod& pod);

// rollback.cpp. Makes a plan that was in force before the next plan, without a predicted gain.
void start_rollback(Pass& pass, schedule::Plan plan, schedule::Trigger trigger);
// True if the workers have refused a rollback that is requested again now or after some more steps.
bool continue_rollback(Pass& pass);

// Shared by the tiers.
constexpr int kFailedRetrySteps = 4;  // steps after which a retry that is much slower ends
gate::Moment moment_of(const Pass& pass);
gate::Rules tier_rules(const api::TierSpec& tier, bool asked);
// Emits event PlanProposed, unless the last one had the same name.
void propose(Pass& pass, const std::string& name, const std::string& note);
void after_action(Pass& pass, TierMemory::Pending pending);
std::string megabytes(std::int64_t bytes);

}  // namespace weir::reconcile
