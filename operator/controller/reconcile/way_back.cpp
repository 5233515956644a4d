// SPDX-License-Identifier: Apache-2.0
// The way back from a regrouping. The plan that was left used links that nobody measures now: those
// of a node that is idle, or of another order of nodes. When they are free again each step takes
// longer than it had to, and nothing shows it. So what that may have cost is summed up, and once it
// reaches the price of a try in vain, the plan is tried (ski rental, scheduling.md 5.5): co-tenants
// come and go more often than the cooldown ends. A try that is slower is taken back, and the next
// one must have cost twice as much.
#include <algorithm>
#include <set>
#include <utility>

#include "operator/controller/reconcile/ports.h"
#include "operator/controller/reconcile/tiers.h"
#include "worker/base/gain.h"

namespace weir::reconcile {
namespace {

constexpr double kLeastGain = 0.03;      // what a try is judged by, operator.md 9.6
constexpr std::size_t kMostNodes = 64;   // pairs: 4096
constexpr double kAssumedSlower = 0.25;  // of a step, by a try in vain; of an earlier leader

using schedule::Trigger;

// Of links that this leader has not seen: none is usually faster than the fastest now.
std::vector<SeenLink> assumed_links(const Pass& pass, const schedule::Plan& plan) {
  double fastest = 0;
  for (const SeenLink& link : measured_links(pass)) fastest = std::max(fastest, link.usual);
  std::set<std::string> nodes;
  for (const auto& rank : plan.ranks) nodes.insert(rank.node);
  std::vector<SeenLink> links;
  if (fastest <= 0 || nodes.size() > kMostNodes) return links;
  for (const std::string& from : nodes) {
    for (const std::string& to : nodes) {
      if (from != to) links.push_back({from, to, fastest, fastest, pass.now()});
    }
  }
  return links;
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
  return TierMemory::Left{
      .plan = *oldest, .links = assumed_links(pass, *oldest), .slower_seconds = -1};
}

bool members_live(const Pass& pass, const schedule::Plan& plan) {
  std::set<std::string> live;
  for (const auto& member : pass.snapshot.members->body.members) live.insert(member.pod_uid);
  return std::ranges::all_of(plan.ranks,
                             [&](const auto& rank) { return live.contains(rank.pod_uid); });
}

// What is measured now counts, with what it says about ports; all else is as usual.
planner::Cluster with_free_links(const Pass& pass, const TierMemory::Left& left) {
  planner::Cluster cluster = cluster_of(pass);
  for (const SeenLink& link : left.links) {
    cluster.links.push_back({link.from, link.to, link.usual, cluster.default_latency});
  }
  std::set<std::string> nodes;
  for (const auto& device : cluster.devices) nodes.insert(device.node);
  add_inferred_links(measured_links(pass), {nodes.begin(), nodes.end()}, cluster);
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

void remember_way_back(Pass& pass, const RegroupCandidate& taken) {
  auto& left = pass.adaptation.tiers.left;
  if (!left) {  // the first since the members are these: it was made for free links
    left = TierMemory::Left{.plan = *pass.plan, .links = measured_links(pass)};
  }
  left->slower_seconds = std::max(0.0, taken.offer.current_seconds - taken.offer.seconds);
  left->lost_seconds = left->price_seconds = 0;
  left->step = pass.snapshot.report->body.step;
}

bool try_way_back(Pass& pass, const planner::Model& model, const tuner::Input& input,
                  double current_seconds) {
  auto& tiers = pass.adaptation.tiers;
  const auto& adaptation = pass.spec().adaptation;
  if (!std::exchange(tiers.sought_left, true) && !tiers.left) tiers.left = found_among_plans(pass);
  if (!tiers.left || adaptation.mode != "Auto" || !adaptation.regroup.enabled) return false;
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
  const double vain = 2 * back->offer.cost_seconds + kOutcomeSteps * left.slower_seconds;
  left.price_seconds = std::max(left.price_seconds, vain);
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
