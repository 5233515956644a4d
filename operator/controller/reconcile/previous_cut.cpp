// SPDX-License-Identifier: Apache-2.0
// Retry of the previous cut after a repartition. The previous plan used links that nobody measures
// now, those of an idle node or of another order of nodes. If these links are free again, steps
// take longer than necessary, and no measurement shows it. So the operator sums up the time that
// may have been lost, and retries the previous cut once that exceeds the cost of a failed retry
// (operator/adaptation/retune/README.md "Retry of the previous cut"). The cooldown does not matter,
// since co-tenants come and go more often. A retry that is slower is rolled back and doubles the
// budget for the next one, up to a limit, so that a node that has recovered does not stay idle for
// good. A plan that was made from scratch on slow links is treated equally: the plan for free links
// is its previous cut.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "operator/controller/reconcile/tiers.h"
#include "operator/facts/node_bandwidth.h"
#include "worker/base/gain.h"

namespace weir::reconcile {
namespace {

constexpr double kLeastGain = 0.03;     // what a retry must promise; kSlower of adaptation/gate
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
std::vector<facts::RememberedLink> usual_links(const Pass& pass,
                                               const std::set<std::string>& nodes) {
  const auto& seen = pass.adaptation.history.links;
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
      if (from != to) links.push_back({from, to, rate, rate, pass.now()});
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
std::optional<TierMemory::PreviousCut> found_among_plans(const Pass& pass) {
  const schedule::Plan* oldest = pass.plan;
  const auto adapted = [](const schedule::Plan& plan) {
    return plan.trigger == Trigger::kRetune || plan.trigger == Trigger::kRegroup;
  };
  while (adapted(*oldest)) {
    const auto& plans = pass.snapshot.plans;
    const auto parent = std::ranges::find(plans, oldest->parent, &schedule::Plan::revision);
    if (parent == plans.end()) break;
    oldest = &*parent;
  }
  if (same_ranks(*oldest, *pass.plan)) return std::nullopt;
  return TierMemory::PreviousCut{
      .plan = *oldest,
      .links = usual_links(pass, facts::nodes_of(cluster_of(facts_of(pass)))),
      .slower_seconds = -1};
}

// A plan that was made from scratch while links were slow would avoid them for good. So the plan
// that would be made on free links counts as its previous cut.
std::optional<TierMemory::PreviousCut> planned_for_free_links(const Pass& pass,
                                                              const planner::Model& model,
                                                              const costing::Input& input,
                                                              double current_seconds) {
  planner::Cluster known = cluster_of(facts_of(pass)), free = known;
  TierMemory::PreviousCut cut{.links = usual_links(pass, facts::nodes_of(free)), .in_force = false};
  add_usual(cut.links, free);
  auto report = plan_for_members(facts_of(pass), model, free);
  if (!report || same_ranks(report->plan, *pass.plan)) return std::nullopt;
  cut.plan = std::move(report->plan);
  facts::add_inferred_links(pass.adaptation.history.links, known);
  const auto now = costed(pass, model, known, input, cut.plan);
  if (!now) return std::nullopt;
  cut.slower_seconds = std::max(0.0, now->offer.then_seconds - current_seconds);
  return cut;
}

// The cluster in which links have their measured rates now, or rates inferred from these; all other
// links have their usual rates.
planner::Cluster with_free_links(const Pass& pass, const TierMemory::PreviousCut& cut) {
  planner::Cluster cluster = cluster_of(facts_of(pass));
  add_usual(cut.links, cluster);
  facts::add_inferred_links(carrying_links(facts_of(pass)), cluster);
  return cluster;
}

void start_retry(Pass& pass, const RepartitionProposal& previous, double gain) {
  TierMemory::Pending pending;
  pending.tier = Trigger::kRegroup;
  pending.previous = *pass.plan;
  pending.offer = previous.offer.name;
  pending.what = previous.what + ", retry of the previous cut";
  pending.predicted_gain = gain;
  pending.move_seconds = previous.move_seconds;
  pending.is_retry = true;
  schedule::Plan plan = previous.plan;
  plan.state = schedule::StateMove::kMove;
  plan.holders.clear();
  adopt_plan(pass, std::move(plan), Trigger::kRegroup, gain);
  pending.revision = static_cast<std::uint32_t>(pass.status.plan.revision);
  // A retry starts no cooldown.
  const auto last_change = pass.status.regroup_last_change;
  after_action(pass, std::move(pending));
  pass.status.regroup_last_change = last_change;
}

}  // namespace

void remember_previous_cut(Pass& pass, const RepartitionProposal& taken) {
  auto& cut = pass.adaptation.tiers.previous_cut;
  if (!cut) {  // the first repartition with these members: the present plan was made for free links
    cut = TierMemory::PreviousCut{
        .plan = *pass.plan,
        .links = usual_links(pass, facts::nodes_of(cluster_of(facts_of(pass))))};
  }
  cut->slower_seconds = std::max(0.0, taken.offer.now_seconds - taken.offer.then_seconds);
  cut->lost_seconds = cut->retry_budget_seconds = 0;
  cut->step = pass.snapshot.report->body.step;
}

bool retry_previous_cut(Pass& pass, const planner::Model& model, const costing::Input& input,
                        double current_seconds) {
  auto& tiers = pass.adaptation.tiers;
  const auto& adaptation = pass.spec().adaptation;
  if (adaptation.mode != "Auto" || !adaptation.regroup.enabled) return false;
  const bool seeks = !tiers.previous_cut && (!tiers.sought_previous_cut ||
                                             pass.now() - *tiers.sought_previous_cut >= kSought);
  if (seeks) {
    if (!tiers.sought_previous_cut) tiers.previous_cut = found_among_plans(pass);
    if (!tiers.previous_cut)
      tiers.previous_cut = planned_for_free_links(pass, model, input, current_seconds);
    tiers.sought_previous_cut = pass.now();
  }
  if (!tiers.previous_cut) return false;
  auto& cut = *tiers.previous_cut;
  if (pass.plan->trigger == Trigger::kManual || same_ranks(cut.plan, *pass.plan) ||
      !members_live(facts_of(pass), cut.plan)) {
    tiers.previous_cut.reset();
    return false;
  }
  const auto step = pass.snapshot.report->body.step;
  const std::int64_t steps = cut.step > 0 ? step - cut.step : 0;
  cut.step = step;
  const auto previous = costed(pass, model, with_free_links(pass, cut), input, cut.plan);
  if (!previous) return false;
  if (cut.slower_seconds < 0) cut.slower_seconds = kAssumedSlower * current_seconds;
  const int slow_steps = cut.slower_seconds > kClearlySlowerCut * current_seconds
                             ? kFailedRetrySteps
                             : facts::kOutcomeSteps;
  const double failed = 2 * previous->offer.cost_seconds + slow_steps * cut.slower_seconds;
  cut.retry_budget_seconds =
      std::clamp(cut.retry_budget_seconds, failed, kMostFailedRetries * failed);
  const double gain = throughput_gain(current_seconds, previous->offer.then_seconds);
  if (gain < kLeastGain) return false;
  cut.lost_seconds += static_cast<double>(steps) * (current_seconds - previous->offer.then_seconds);
  const auto since = step - pass.adaptation.tuner.last_change_step;
  if (cut.lost_seconds < cut.retry_budget_seconds || since < facts::kOutcomeSteps) return false;
  cut.retry_budget_seconds *= 2;
  cut.lost_seconds = 0;
  start_retry(pass, *previous, gain);
  return true;
}

}  // namespace weir::reconcile
