// SPDX-License-Identifier: Apache-2.0
// The way back from a regrouping. The plan that was left used links that nobody measures now: those
// of a node that is idle, or of another order of nodes. When they are free again each step takes
// longer than it had to, and nothing shows it. So what that may have cost is summed up, and once it
// reaches the price of a try in vain, the plan is tried (operator/tuner/README.md "Way back"):
// co-tenants come and go more often than the cooldown ends. A try that is slower is taken back, and
// the next one must have cost twice as much, up to a limit: what is free again must not stay idle.
// A plan made from scratch while links were slow has such a way, too: to the plan for free links.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "operator/controller/reconcile/node_bandwidth.h"
#include "operator/controller/reconcile/tiers.h"
#include "worker/base/gain.h"

namespace weir::reconcile {
namespace {

constexpr double kLeastGain = 0.03;      // as much as a try is judged by (kSlower of tuner/rules.h)
constexpr std::size_t kMostNodes = 64;   // pairs: 4096
constexpr double kAssumedSlower = 0.25;  // of a step, by a try in vain; of an earlier leader
constexpr double kSoonSeen = 0.2;        // of a step: a try in vain that ends after kTrySteps
constexpr double kMostPrice = 8;         // in tries in vain: what a free node may be lost for
// How often the plan for free links is asked for: baselines come every five minutes.
constexpr std::chrono::minutes kSought{5};

using schedule::Trigger;

// All links between these nodes as they usually are. Of links that nobody has seen: what the
// slower of both nodes usually has on its fastest link; none has more than the fastest now.
std::vector<SeenLink> usual_links(const Pass& pass, const std::set<std::string>& nodes) {
  const auto& seen = pass.adaptation.tiers.seen;
  double fastest = 0;
  std::map<std::string, double> most;
  for (const SeenLink& link : seen) {
    fastest = std::max(fastest, link.usual);
    most[link.from] = std::max(most[link.from], link.usual);
    most[link.to] = std::max(most[link.to], link.usual);
  }
  std::vector<SeenLink> links;
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
  for (const SeenLink& link : seen) links.push_back(link);  // later ones win
  return links;
}

void add_usual(const std::vector<SeenLink>& links, planner::Cluster& cluster) {
  for (const SeenLink& link : links) {
    cluster.links.push_back({link.from, link.to, link.usual, cluster.default_latency});
  }
}

// A new leader finds it among the plans that are kept: the oldest from which only adaptation led
// to the one in force.
std::optional<TierMemory::Left> found_among_plans(const Pass& pass) {
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
  return TierMemory::Left{.plan = *oldest,
                          .links = usual_links(pass, nodes_of(cluster_of(pass))),
                          .slower_seconds = -1};
}

// A plan that was made from scratch while links were slow avoids them for good, as if another had
// been left for it: the one that would be made on free links.
std::optional<TierMemory::Left> planned_for_free_links(const Pass& pass,
                                                       const planner::Model& model,
                                                       const tuner::Input& input,
                                                       double current_seconds) {
  planner::Cluster known = cluster_of(pass), free = known;
  TierMemory::Left left{.links = usual_links(pass, nodes_of(free)), .in_force = false};
  add_usual(left.links, free);
  auto report = plan_for_members(pass, model, free);
  if (!report || same_ranks(report->plan, *pass.plan)) return std::nullopt;
  left.plan = std::move(report->plan);
  add_inferred_links(pass.adaptation.tiers.seen, known);
  const auto now = costed(pass, model, known, input, left.plan);
  if (!now) return std::nullopt;
  left.slower_seconds = std::max(0.0, now->offer.seconds - current_seconds);
  return left;
}

// What is measured now counts, with what it says about ports; all else is as usual.
planner::Cluster with_free_links(const Pass& pass, const TierMemory::Left& left) {
  planner::Cluster cluster = cluster_of(pass);
  add_usual(left.links, cluster);
  add_inferred_links(carrying_links(pass), cluster);
  return cluster;
}

void go_back(Pass& pass, const RegroupCandidate& back, double gain) {
  TierMemory::Pending pending;
  pending.tier = Trigger::kRegroup;
  pending.previous = *pass.plan;
  pending.offer = back.offer.text;
  pending.what = back.what + ", tried again";
  pending.predicted_gain = gain;
  pending.move_seconds = back.move_seconds;
  pending.returns = true;
  schedule::Plan plan = back.plan;
  plan.state = schedule::StateMove::kMove;
  plan.holders.clear();
  adopt_plan(pass, std::move(plan), Trigger::kRegroup, gain);
  pending.revision = static_cast<std::uint32_t>(pass.status.plan.revision);
  // What is undone starts no cooldown.
  const auto last_change = pass.status.regroup_last_change;
  after_action(pass, std::move(pending));
  pass.status.regroup_last_change = last_change;
}

}  // namespace

bool members_live(const Pass& pass, const schedule::Plan& plan) {
  std::set<std::string> live;
  for (const auto& member : pass.snapshot.members->body.members) live.insert(member.pod_uid);
  return std::ranges::all_of(plan.ranks,
                             [&](const auto& rank) { return live.contains(rank.pod_uid); });
}

void remember_way_back(Pass& pass, const RegroupCandidate& taken) {
  auto& left = pass.adaptation.tiers.left;
  if (!left) {  // the first since the members are these: it was made for free links
    left = TierMemory::Left{.plan = *pass.plan,
                            .links = usual_links(pass, nodes_of(cluster_of(pass)))};
  }
  left->slower_seconds = std::max(0.0, taken.offer.current_seconds - taken.offer.seconds);
  left->lost_seconds = left->price_seconds = 0;
  left->step = pass.snapshot.report->body.step;
}

bool try_way_back(Pass& pass, const planner::Model& model, const tuner::Input& input,
                  double current_seconds) {
  auto& tiers = pass.adaptation.tiers;
  const auto& adaptation = pass.spec().adaptation;
  if (adaptation.mode != "Auto" || !adaptation.regroup.enabled) return false;
  const bool seeks =
      !tiers.left && (!tiers.sought_left || pass.now() - *tiers.sought_left >= kSought);
  if (seeks) {
    if (!tiers.sought_left) tiers.left = found_among_plans(pass);
    if (!tiers.left) tiers.left = planned_for_free_links(pass, model, input, current_seconds);
    tiers.sought_left = pass.now();
  }
  if (!tiers.left) return false;
  auto& left = *tiers.left;
  if (pass.plan->trigger == Trigger::kManual || same_ranks(left.plan, *pass.plan) ||
      !members_live(pass, left.plan)) {
    tiers.left.reset();
    return false;
  }
  const auto step = pass.snapshot.report->body.step;
  const std::int64_t steps = left.step > 0 ? step - left.step : 0;
  left.step = step;
  const auto back = costed(pass, model, with_free_links(pass, left), input, left.plan);
  if (!back) return false;
  if (left.slower_seconds < 0) left.slower_seconds = kAssumedSlower * current_seconds;
  const bool soon_seen = left.slower_seconds > kSoonSeen * current_seconds;
  const double vain =
      2 * back->offer.cost_seconds + (soon_seen ? kTrySteps : kOutcomeSteps) * left.slower_seconds;
  left.price_seconds = std::clamp(left.price_seconds, vain, kMostPrice * vain);
  const double gain = throughput_gain(current_seconds, back->offer.seconds);
  if (gain < kLeastGain) return false;
  left.lost_seconds += static_cast<double>(steps) * (current_seconds - back->offer.seconds);
  const auto since = step - pass.adaptation.tuner.last_change_step;
  if (left.lost_seconds < left.price_seconds || since < kOutcomeSteps) return false;
  left.price_seconds *= 2;
  left.lost_seconds = 0;
  go_back(pass, *back, gain);
  return true;
}

}  // namespace weir::reconcile
