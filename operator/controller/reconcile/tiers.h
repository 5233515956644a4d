// SPDX-License-Identifier: Apache-2.0
// The tiers above retune: regroup (another rank map or cut, weights move between live workers) and
// replace (a worker on another node). Private to this room.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/controller/reconcile/pass.h"
#include "operator/tuner/gate.h"

namespace weir::reconcile {

// Both weigh by the rules of tuner/gate.h, propose only in mode Observe, and act at most once.
// decision: of the retune tier in this pass, which found nothing to do. asked: by the annotation.
void escalate(Pass& pass, const planner::Model& model, const tuner::Input& input,
              const tuner::Decision& decision, bool asked);
// Tells what a change of these tiers has cost and brought, and takes back what made steps slower.
// True: a plan was made.
bool judge_tiers(Pass& pass);
bool tiers_enabled(const api::JobSpec& spec);
// Members are others now: what was learnt of the old ranks goes, clocks and links stay.
void forget_ranks(Pass& pass);

// repartition.cpp. The best plan for the members with all that is known of links; nothing when it
// is the one in force. Seconds of a step by the simulator over the sampled rates.
std::optional<RepartitionProposal> best_repartition(const Pass& pass, const planner::Model& model,
                                                    const tuner::Input& input,
                                                    double current_seconds);
bool same_ranks(const schedule::Plan& a, const schedule::Plan& b);             // and the same cut
std::string difference(const schedule::Plan& from, const schedule::Plan& to);  // for people
// What a plan would cost and bring on these links; nothing when its ranks and cut are those of the
// plan in force, or a link is unknown.
std::optional<RepartitionProposal> costed(const Pass& pass, const planner::Model& model,
                                          const planner::Cluster& cluster,
                                          const tuner::Input& input, schedule::Plan plan);
// Weighs the proposal and adopts or proposes it. True: it gains enough, even if it must wait.
bool consider_repartition(Pass& pass, double current_seconds, bool asked);
// The cluster with what is remembered of links, and without the nodes whose ports are slow: what to
// plan for. The planner takes devices of a kind as equally connected.
std::vector<planner::Cluster> on_known_links(const std::vector<SeenLink>& seen,
                                             planner::Cluster cluster);
// previous_cut.cpp. Call the first before a repartition is adopted, and the second at each
// evaluation. It returns true if it starts a retry of the previous cut.
void remember_previous_cut(Pass& pass, const RepartitionProposal& taken);
bool retry_previous_cut(Pass& pass, const planner::Model& model, const tuner::Input& input,
                        double current_seconds);
// replace.cpp.
// Leaves the slow node alone when no regrouping is `enough`. True: it acted.
bool consider_replacement(Pass& pass, const planner::Model& model, const tuner::Input& input,
                          double current_seconds, bool asked);
// This worker has been told to leave its node and has not yet been made again.
bool leaves_its_node(const Pass& pass, const api::Pod& pod);

// rollback.cpp. Makes a plan that was in force before the next plan, without a predicted gain.
void start_rollback(Pass& pass, schedule::Plan plan, schedule::Trigger trigger);
// True if the workers have refused a rollback that is requested again now or after some more steps.
bool continue_rollback(Pass& pass);

// Shared.
bool members_live(const Pass& pass, const schedule::Plan& plan);  // its pods are the members
constexpr int kFailedRetrySteps = 4;  // steps after which a retry that is much slower ends
tuner::Moment moment_of(const Pass& pass);
tuner::TierSettings tier_settings(const api::TierSpec& tier, bool asked);
// One event per change of mind.
void propose(Pass& pass, const std::string& name, const std::string& note);
void after_action(Pass& pass, TierMemory::Pending pending);
std::vector<SeenLink> measured_links(const Pass& pass);  // between stages
std::vector<SeenLink> carrying_links(const Pass& pass);  // and between replicas
std::string megabytes(std::int64_t bytes);

}  // namespace weir::reconcile
