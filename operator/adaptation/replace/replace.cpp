// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/replace/replace.h"

#include <algorithm>
#include <set>

#include "operator/adaptation/costing/exposed_sync.h"
#include "operator/api/validate.h"
#include "operator/facts/node_bandwidth.h"
#include "operator/facts/planning.h"
#include "worker/base/text.h"

namespace weir::replace {
namespace {

constexpr double kAssumedRestart = 60;  // s for pod, image, checkpoint and first plan; assumed
// Seconds that a spare costs, assumed: 1 to 3 s were measured, depending on the plan
// (tests/bench/RESULTS.md "A lost worker").
constexpr double kAssumedSpare = 5;

// The node of the plan that has the smallest share of its usual bandwidth.
std::optional<std::string> slowest_node(const facts::Facts& facts) {
  std::optional<std::string> slowest;
  double least = 1;
  const auto slow = facts::slow_nodes(facts.history->links);
  for (const auto& rank : facts.plan->ranks) {
    const auto node = slow.find(rank.node);
    if (node == slow.end()) continue;
    const double share = std::min(node->second.out, node->second.in);
    if (share < least) slowest = rank.node;
    least = std::min(least, share);
  }
  return slowest;
}

// Whether a spare waits where the network is better. None takes the place of the coordinator
// (operator/controller/reconcile/plans/substitute.cpp).
bool spare_on_better_node(const facts::Facts& facts, const facts::Worker& worker) {
  if (worker.coordinates || facts.spec.restart_scope != api::RestartScope::kWorker) return false;
  const auto slow = facts::slow_nodes(facts.history->links);
  return std::ranges::any_of(facts.spares, [&](const facts::Worker& spare) {
    const auto node = facts.nodes.find(spare.node);
    const bool open =
        node == facts.nodes.end() || (node->second->ready && node->second->schedulable);
    return open && spare.group == worker.group && !spare.ended && spare.node != worker.node &&
           !slow.contains(spare.node);
  });
}

// Whether another node can take a pod, as far as nodes show; whether a pod fits is the scheduler's
// decision.
bool free_node_exists(const facts::Facts& facts) {
  std::set<std::string> taken;
  for (const auto& worker : facts.workers) taken.insert(worker.node);
  for (const auto& avoided : facts.status.avoided_nodes) taken.insert(avoided.node);
  return std::ranges::any_of(facts.nodes, [&](const auto& each) {
    const auto& [name, node] = each;
    const bool closed = std::ranges::any_of(node->taints, [](const api::Taint& taint) {
      return taint.effect == "NoSchedule" || taint.effect == "NoExecute";
    });
    return node->ready && node->schedulable && !closed && !taken.contains(name);
  });
}

// The input of a costing with the usual rates on all links of the node.
costing::Input with_usual_links(const facts::Facts& facts, const planner::Model& model,
                                const costing::Input& input, const std::string& node) {
  costing::Input free = input;
  const costing::SumLinks now = costing::sum_links(facts, cluster_of(facts));
  costing::SumLinks then = now;
  for (const auto* links : {&facts.estimates.sync_links, &facts.estimates.links}) {
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
      input.sync_seconds, costing::modelled_exposed_sync(*facts.plan, model, now, input.stages),
      costing::modelled_exposed_sync(*facts.plan, model, then, input.stages));
  return free;
}

// Seconds of the steps after the last checkpoint, which a restart repeats. A spare takes the state
// from the worker that leaves, from another replica or from copies, if that is possible.
double lost_seconds(const facts::Facts& facts, bool spare, double current_seconds) {
  const auto& report = *facts.report;
  const auto* kept = api::find_condition(facts.status.conditions, "Recoverable");
  if (spare && kept != nullptr && kept->status == "True") return 0;
  const auto from = std::max<std::int64_t>(0, report.last_checkpoint_step);
  return static_cast<double>(std::max<std::int64_t>(0, report.step - from)) * current_seconds;
}

const facts::Worker* worker_on(const facts::Facts& facts, const std::string& node) {
  const auto found = std::ranges::find_if(
      facts.workers, [&](const auto& worker) { return worker.node == node && !worker.ended; });
  return found == facts.workers.end() ? nullptr : &*found;
}

}  // namespace

std::optional<gate::Proposal> propose(const facts::Facts& facts, const costing::Costing& costing,
                                      const gate::Moment& moment, bool asked, Memory& memory) {
  const auto node = slowest_node(facts);
  const facts::Worker* worker = node ? worker_on(facts, *node) : nullptr;
  const auto seconds =
      worker == nullptr
          ? std::nullopt
          : costing::predicted_step(with_usual_links(facts, costing.model, costing.input, *node),
                                    costing.state);
  const bool spare = worker != nullptr && spare_on_better_node(facts, *worker);
  if (!seconds || !(spare || free_node_exists(facts))) {
    gate::nothing_offered(memory.record);
    return std::nullopt;
  }
  const gate::Offer offer{.name = "leave node " + *node,
                          .now_seconds = costing.current_seconds,
                          .then_seconds = *seconds,
                          .cost_seconds = (spare ? kAssumedSpare : kAssumedRestart) +
                                          lost_seconds(facts, spare, costing.current_seconds)};
  const auto weighed =
      gate::weigh(offer, moment,
                  gate::costly_rules(facts.spec.adaptation.replace.min_gain_percent,
                                     facts.spec.adaptation.replace.cooldown_seconds, asked),
                  memory.clock, memory.record);
  memory.record = weighed.record;
  if (!weighed.act) return std::nullopt;
  return gate::Proposal{.kind = gate::Kind::kReplace,
                        .trigger = schedule::Trigger::kReplace,
                        .offer = offer,
                        .what = offer.name,
                        .text = "pod " + worker->pod + " moves away from node " + *node +
                                ", predicted +" + percent(weighed.gain) + " %: " + weighed.reason,
                        .gain = weighed.gain,
                        .change = gate::WorkerToReplace{worker->pod}};
}

}  // namespace weir::replace
