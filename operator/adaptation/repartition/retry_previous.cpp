// SPDX-License-Identifier: Apache-2.0
// Retry of the previous cut after a repartition. The previous plan used links that nobody measures
// now, those of an idle node or of another order of nodes. If these links are free again, steps
// take longer than necessary, and no measurement shows it. So the operator sums up the time that
// may have been lost, and retries the previous cut once that exceeds the cost of a failed retry
// (operator/adaptation/repartition/README.md "Retry of the previous cut"). The cooldown does not
// matter, since co-tenants come and go more often. A retry that is slower is rolled back and
// doubles the budget for the next one, up to a limit, so that a node that has recovered does not
// stay idle for good. A plan that was made from scratch on slow links is treated equally: the plan
// for free links is its previous cut.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "operator/adaptation/repartition/repartition.h"
#include "operator/facts/measured_times.h"
#include "operator/facts/node_bandwidth.h"
#include "operator/facts/planning.h"
#include "worker/base/gain.h"

namespace weir::repartition {
namespace {

constexpr std::size_t kMostNodes = 64;  // at most 4096 pairs of nodes
// Part of a step by which the previous cut counts as slower if an earlier leader left it.
constexpr double kAssumedSlower = 0.25;
// A failed retry that is slower by this part of a step ends after kFailedRetrySteps.
constexpr double kClearlySlowerCut = 0.2;
constexpr double kMostFailedRetries = 8;  // limit of the retry budget, in costs of a failed retry
// Interval of the search for the plan for free links. Baselines change every five minutes.
constexpr std::chrono::minutes kSought{5};

using schedule::Trigger;

// All links between these nodes with their usual rates. For a link that was never measured, the
// usual rate of each node's fastest link is taken, and the lower one of both nodes counts.
std::vector<facts::RememberedLink> usual_links(const facts::Facts& facts,
                                               const std::set<std::string>& nodes) {
  const auto& seen = facts.history->links;
  double fastest = 0;
  std::map<std::string, double> most;
  for (const facts::RememberedLink& link : seen) {
    fastest = std::max(fastest, link.usual);
    most[link.from] = std::max(most[link.from], link.usual);
    most[link.to] = std::max(most[link.to], link.usual);
  }
  std::vector<facts::RememberedLink> links;
  if (fastest <= 0 || nodes.size() > kMostNodes) return links;
  const auto most_of = [&](const std::string& node) {
    const auto known = most.find(node);
    return known == most.end() ? fastest : known->second;
  };
  for (const std::string& from : nodes) {
    for (const std::string& to : nodes) {
      const double rate = std::min(most_of(from), most_of(to));
      if (from != to) links.push_back({from, to, rate, rate, facts.now});
    }
  }
  for (const facts::RememberedLink& link : seen) links.push_back(link);  // later entries win
  return links;
}

void add_usual(const std::vector<facts::RememberedLink>& links, planner::Cluster& cluster) {
  for (const facts::RememberedLink& link : links) {
    cluster.links.push_back({link.from, link.to, link.usual, cluster.default_latency});
  }
}

// A new leader looks for the previous cut among the kept plans: the oldest plan from which only
// adaptation has led to the one in force.
std::optional<PreviousCut> found_among_plans(const facts::Facts& facts) {
  const schedule::Plan* oldest = facts.plan;
  const auto adapted = [](const schedule::Plan& plan) {
    return plan.trigger == Trigger::kRetune || plan.trigger == Trigger::kRegroup;
  };
  while (adapted(*oldest)) {
    const auto& plans = facts.plans;
    const auto parent = std::ranges::find(plans, oldest->parent, &schedule::Plan::revision);
    if (parent == plans.end()) break;
    oldest = &*parent;
  }
  if (same_ranks(*oldest, *facts.plan)) return std::nullopt;
  return PreviousCut{.plan = *oldest,
                     .links = usual_links(facts, facts::nodes_of(cluster_of(facts))),
                     .slower_seconds = -1};
}

// A plan that was made from scratch while links were slow would avoid them for good. So the plan
// that would be made on free links counts as its previous cut.
std::optional<PreviousCut> planned_for_free_links(const facts::Facts& facts,
                                                  const costing::Costing& costing,
                                                  double pause_seconds) {
  planner::Cluster known = cluster_of(facts), free = known;
  PreviousCut cut{.links = usual_links(facts, facts::nodes_of(free)), .in_force = false};
  add_usual(cut.links, free);
  auto report = plan_for_members(facts, costing.model, free);
  if (!report || same_ranks(report->plan, *facts.plan)) return std::nullopt;
  cut.plan = std::move(report->plan);
  facts::add_inferred_links(facts.history->links, known);
  const auto now = costed(facts, costing, known, pause_seconds, cut.plan);
  if (!now) return std::nullopt;
  cut.slower_seconds = std::max(0.0, now->offer.then_seconds - costing.current_seconds);
  return cut;
}

// The cluster in which links have their measured rates now, or rates inferred from these; all other
// links have their usual rates.
planner::Cluster with_free_links(const facts::Facts& facts, const PreviousCut& cut) {
  planner::Cluster cluster = cluster_of(facts);
  add_usual(cut.links, cluster);
  facts::add_inferred_links(carrying_links(facts), cluster);
  return cluster;
}

// The previous cut, if it may be retried with these members; it is looked for every few minutes.
PreviousCut* known_cut(const facts::Facts& facts, const costing::Costing& costing, Memory& memory) {
  const bool seeks = !memory.previous_cut && (!memory.sought_previous_cut ||
                                              facts.now - *memory.sought_previous_cut >= kSought);
  if (seeks) {
    if (!memory.sought_previous_cut) memory.previous_cut = found_among_plans(facts);
    if (!memory.previous_cut) {
      memory.previous_cut = planned_for_free_links(facts, costing, memory.pause_seconds);
    }
    memory.sought_previous_cut = facts.now;
  }
  if (!memory.previous_cut) return nullptr;
  const schedule::Plan& plan = memory.previous_cut->plan;
  if (facts.plan->trigger == Trigger::kManual || same_ranks(plan, *facts.plan) ||
      !members_live(facts, plan)) {
    memory.previous_cut.reset();
    return nullptr;
  }
  return &*memory.previous_cut;
}

gate::Proposal retry_of(const Candidate& previous, double gain) {
  gate::Proposal proposal{.kind = gate::Kind::kRetry,
                          .trigger = Trigger::kRegroup,
                          .offer = previous.offer,
                          .what = previous.what + ", retry of the previous cut",
                          .text = {},
                          .gain = gain,
                          .move_seconds = previous.move_seconds,
                          .change = previous.plan};
  auto& plan = std::get<schedule::Plan>(proposal.change);
  plan.state = schedule::StateMove::kMove;
  plan.holders.clear();
  plan.codecs = {};
  return proposal;
}

}  // namespace

void remember_previous_cut(const facts::Facts& facts, const gate::Offer& taken, Memory& memory) {
  auto& cut = memory.previous_cut;
  if (!cut) {  // the first repartition with these members: the present plan was made for free links
    cut = PreviousCut{.plan = *facts.plan,
                      .links = usual_links(facts, facts::nodes_of(cluster_of(facts)))};
  }
  cut->slower_seconds = std::max(0.0, taken.now_seconds - taken.then_seconds);
  cut->lost_seconds = cut->retry_budget_seconds = 0;
  cut->step = facts.report->step;
}

std::optional<gate::Proposal> retry_previous(const facts::Facts& facts,
                                             const costing::Costing& costing,
                                             const gate::Moment& moment, Memory& memory) {
  const auto& adaptation = facts.spec.adaptation;
  if (adaptation.mode != api::AdaptationMode::kAuto || !adaptation.regroup.enabled)
    return std::nullopt;
  PreviousCut* cut = known_cut(facts, costing, memory);
  if (cut == nullptr) return std::nullopt;
  const double current_seconds = costing.current_seconds;
  const std::int64_t steps = cut->step > 0 ? moment.step - cut->step : 0;
  cut->step = moment.step;
  const auto previous =
      costed(facts, costing, with_free_links(facts, *cut), memory.pause_seconds, cut->plan);
  if (!previous) return std::nullopt;
  if (cut->slower_seconds < 0) cut->slower_seconds = kAssumedSlower * current_seconds;
  const int slow_steps = cut->slower_seconds > kClearlySlowerCut * current_seconds
                             ? kFailedRetrySteps
                             : facts::kOutcomeSteps;
  const double failed = 2 * previous->offer.cost_seconds + slow_steps * cut->slower_seconds;
  cut->retry_budget_seconds =
      std::clamp(cut->retry_budget_seconds, failed, kMostFailedRetries * failed);
  const double gain = throughput_gain(current_seconds, previous->offer.then_seconds);
  if (gain < gate::kSlower) return std::nullopt;  // less would be rolled back by its scatter
  cut->lost_seconds +=
      static_cast<double>(steps) * (current_seconds - previous->offer.then_seconds);
  const auto since = moment.step - moment.last_change_step;
  if (cut->lost_seconds < cut->retry_budget_seconds || since < facts::kOutcomeSteps) {
    return std::nullopt;
  }
  cut->retry_budget_seconds *= 2;
  cut->lost_seconds = 0;
  return retry_of(*previous, gain);
}

}  // namespace weir::repartition
