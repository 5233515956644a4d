// SPDX-License-Identifier: Apache-2.0
// Tier replace: a worker is made again on another node if its node stays slow and no other rank map
// helps. Training goes on from the checkpoint.
#include <set>

#include "operator/adaptation/costing/exposed_sync.h"
#include "operator/controller/reconcile/tiers.h"
#include "operator/facts/node_bandwidth.h"

namespace weir::reconcile {
namespace {

constexpr double kAssumedRestart = 60;  // s for pod, image, checkpoint and first plan; assumed

// The node of the plan that has the smallest share of its usual bandwidth.
std::optional<std::string> slowest_node(const Pass& pass) {
  std::optional<std::string> slowest;
  double least = 1;
  const auto slow = facts::slow_nodes(pass.adaptation.history.links);
  for (const auto& rank : pass.plan->ranks) {
    const auto node = slow.find(rank.node);
    if (node == slow.end()) continue;
    const double share = std::min(node->second.out, node->second.in);
    if (share < least) slowest = rank.node;
    least = std::min(least, share);
  }
  return slowest;
}

// Whether another node can take a pod, as far as nodes show; whether a pod fits is the scheduler's
// decision.
bool free_node_exists(const Pass& pass) {
  std::set<std::string> taken;
  for (const auto& slot : pass.slots) {
    if (slot.pod) taken.insert(slot.pod->node);
  }
  for (const auto& avoided : pass.status.avoided_nodes) taken.insert(avoided.node);
  return std::ranges::any_of(*pass.snapshot.nodes, [&](const auto& each) {
    const auto& [name, node] = each;
    const bool closed = std::ranges::any_of(node->taints, [](const api::Taint& taint) {
      return taint.effect == "NoSchedule" || taint.effect == "NoExecute";
    });
    return node->ready && node->schedulable && !closed && !taken.contains(name);
  });
}

// The tuner's input with the usual rates on all links of the node.
costing::Input with_usual_links(const Pass& pass, const planner::Model& model,
                                const costing::Input& input, const std::string& node) {
  costing::Input free = input;
  const facts::Facts facts = facts_of(pass);
  const costing::SumLinks now = costing::sum_links(facts, cluster_of(facts));
  costing::SumLinks then = now;
  for (const auto* links : {&pass.estimates.sync_links, &pass.estimates.links}) {
    for (const auto& link : *links) {
      if (link.from_node != node && link.to_node != node) continue;
      const double usual = usual_rate(facts, link);
      then.cluster.links.push_back(
          {link.from_node, link.to_node, std::max(link.mean, usual), now.cluster.default_latency});
      const auto rates = free.rates.rates.find(link.link);
      if (rates == free.rates.rates.end()) continue;
      for (double& rate : rates->second) rate = std::max(rate, usual);
    }
  }
  free.sync_seconds = costing::changed_exposed_sync(
      input.sync_seconds, costing::modelled_exposed_sync(*pass.plan, model, now, input.stages),
      costing::modelled_exposed_sync(*pass.plan, model, then, input.stages));
  return free;
}

// Seconds of the steps after the last checkpoint, which a restart repeats.
double lost_seconds(const Pass& pass, double current_seconds) {
  const auto& report = pass.snapshot.report->body;
  const auto from = std::max<std::int64_t>(0, report.last_checkpoint_step);
  return static_cast<double>(std::max<std::int64_t>(0, report.step - from)) * current_seconds;
}

const Slot* slot_on(const Pass& pass, const std::string& node) {
  for (const auto& slot : pass.slots) {
    if (slot.pod && slot.pod->node == node && !worker_ended(*slot.pod)) return &slot;
  }
  return nullptr;
}

}  // namespace

bool leaves_its_node(const Pass& pass, const api::Pod& pod) {
  if (pod.node.empty() || generation_of(pod) >= pass.status.pod_generation) return false;
  return std::ranges::any_of(pass.status.avoided_nodes, [&](const auto& avoided) {
    return avoided.node == pod.node && avoided.reason == name(Cause::kReplaced);
  });
}

bool consider_replacement(Pass& pass, const planner::Model& model, const costing::Input& input,
                          double current_seconds, bool asked) {
  auto& tiers = pass.adaptation.tiers;
  const auto node = slowest_node(pass);
  const Slot* slot = node ? slot_on(pass, *node) : nullptr;
  const auto seconds = slot == nullptr
                           ? std::nullopt
                           : costing::predicted_step(with_usual_links(pass, model, input, *node),
                                                     pass.adaptation.tuner.cost);
  if (!seconds || !free_node_exists(pass)) {
    gate::nothing_offered(tiers.replace);
    return false;
  }
  const gate::Offer offer{.name = "leave node " + *node,
                          .now_seconds = current_seconds,
                          .then_seconds = *seconds,
                          .cost_seconds = kAssumedRestart + lost_seconds(pass, current_seconds)};
  const auto weighed =
      gate::weigh(offer, moment_of(pass), tier_rules(pass.spec().adaptation.replace, asked),
                  tiers.replace_clock, tiers.replace);
  const bool observes = pass.spec().adaptation.mode != "Auto";
  tiers.replace = weighed.record;
  if (!weighed.act) return false;
  const std::string note = "pod " + slot->pod->meta.name + " moves away from node " + *node +
                           ", predicted +" + percent(weighed.gain) + " %: " + weighed.reason;
  if (observes) {
    propose(pass, offer.name, note);
    return false;
  }
  tiers.replace_clock.last_change = pass.now();
  TierMemory::Pending pending;
  pending.tier = schedule::Trigger::kReplace;
  pending.after = static_cast<std::uint32_t>(pass.status.plan.revision);
  pending.offer = offer.name;
  pending.what = offer.name;
  pending.predicted_gain = weighed.gain;
  record_replacement(pass, *slot, note);
  after_action(pass, std::move(pending));
  return true;
}

}  // namespace weir::reconcile
