// SPDX-License-Identifier: Apache-2.0
// The workers' segments tell usual rates of links, contended links and what they cost
// (operator/estimator/README.md "Contention"), where a step goes (operator/explain/README.md).
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "operator/adaptation/costing/conditions.h"
#include "operator/controller/reconcile/plans/plans.h"
#include "operator/explain/waterfall.h"
#include "operator/facts/planning.h"
#include "worker/schedule/search_split.h"

namespace weir::reconcile {
namespace {

using estimator::NodePair;
using estimator::SegmentRates;
using estimator::UsualRates;

// Seconds that the slow links cost in a step of the plan in force.
struct Cost {
  double seconds = 0;
  estimator::Saving saving;
};

Cost cost_of(const facts::Facts& facts, const planner::Model& model, const costing::Conditions& now,
             const std::set<NodePair>& slow, const SegmentRates& segment, const UsualRates& usual) {
  if (slow.empty()) return {};
  costing::Conditions free = now, slower = now;
  for (const NodePair& nodes : slow) {
    const auto link = now.links.find(nodes);
    if (link == now.links.end()) continue;
    free.links[nodes].bytes_per_second =
        std::max(link->second.bytes_per_second, usual.at(nodes).rate);
    slower.links[nodes].bytes_per_second /= 1 + segment.links.at(nodes).error;
  }
  const double step = step_under(now, facts, model, *facts.plan);
  const double usual_step = step_under(free, facts, model, *facts.plan);
  const double slower_step = step_under(slower, facts, model, *facts.plan);
  if (step <= 0 || usual_step <= 0 || slower_step <= 0) return {};
  return {.seconds = step - usual_step,
          .saving = {.part = 1 - usual_step / step, .error = std::abs(slower_step / step - 1)}};
}

// Links at their usual rates, where those are higher.
costing::Conditions usually(costing::Conditions conditions, const UsualRates& usual) {
  for (auto& [nodes, link] : conditions.links) {
    const auto known = usual.find(nodes);
    if (known == usual.end()) continue;
    link.bytes_per_second = std::max(link.bytes_per_second, known->second.rate);
  }
  return conditions;
}

// Explains the step of the replica whose ranks tell its parts. If none does, nothing is known.
void explain_step(const facts::Facts& facts, const planner::Model& model,
                  const costing::Evidence& evidence, const UsualRates& usual,
                  NetworkMemory& memory) {
  memory.waterfall.reset();
  const schedule::Plan& plan = *facts.plan;
  const auto stages = plan.stages.size();
  explain::Steps steps{.step_seconds = evidence.step_seconds, .schedule = plan.schedule};
  int replica = -1;
  for (const protocol::SegmentRank& rank : facts.report->segment->ranks) {
    const bool known = rank.replica >= 0 && rank.replica < plan.replica_count() &&
                       rank.stage >= 0 && static_cast<std::size_t>(rank.stage) < stages;
    if (!rank.parts || !known) continue;
    replica = rank.replica;
    steps.parts.resize(stages);
    steps.parts[static_cast<std::size_t>(rank.stage)] = *rank.parts;
  }
  if (replica < 0 || evidence.steps == 0) return;
  const auto now = costing::pipelines_under(evidence.conditions, facts, model, plan);
  const auto free =
      costing::pipelines_under(usually(evidence.conditions, usual), facts, model, plan);
  const auto at = static_cast<std::size_t>(replica);
  if (at >= now.size() || at >= free.size()) return;
  steps.micro_batches = now[at].micro_batches;
  steps.now = now[at].model;
  steps.usual = free[at].model;
  const bool splits =
      facts::why_whole(facts, &model).empty() && schedule::has_weights(steps.now.stages);
  steps.backwards = splits ? schedule::Backwards::kSplit : schedule::Backwards::kWhole;
  memory.waterfall = explain::waterfall(steps);
  if (!memory.waterfall) return;
  memory.steps = evidence.steps;
  memory.replica = replica;
  memory.parts = std::move(steps.parts);
  for (const schedule::RankPlace& rank : plan.ranks) {
    const bool slowest = rank.replica == replica && rank.stage == memory.waterfall->slowest_stage;
    if (slowest) memory.slowest_node = rank.node;
  }
}

}  // namespace

void judge_network(const View& view, Draft& draft, estimator::Estimates& estimates) {
  auto& network = draft.adaptation.network;
  const auto& report = view.snapshot.report;
  const bool told = view.plan != nullptr && report && report->body.segment &&
                    report->body.segment->revision == view.plan->revision;
  if (!told) network.waterfall.reset();
  if (told && report->received > network.contention.evaluated) {
    const facts::Facts facts = facts_of(view, draft);
    std::string why_not;
    if (const auto model = model_of(facts, why_not)) {
      const SegmentRates segment = costing::segment_rates(facts, *model);
      estimator::remember(network.contention, segment, report->received);
      UsualRates usual = costing::usual_rates(facts, network.contention, segment);
      const auto slow = estimator::slow_links(network.contention, segment, usual);
      const auto evidence = costing::evidence_of(facts, &*model, *view.plan);
      const Cost cost = cost_of(facts, *model, evidence.conditions, slow, segment, usual);
      estimator::evaluate(network.contention, segment, usual, cost.saving, report->received);
      explain_step(facts, *model, evidence, usual, network);
      network.cost_seconds = cost.seconds;
      network.cost_part = cost.saving.part;
      network.usual = std::move(usual);
      network.rates = segment.links;
    }
  }
  for (estimator::LinkEstimate& link : estimates.links) {
    const NodePair nodes{link.from_node, link.to_node};
    const auto known = network.usual.find(nodes);
    if (known == network.usual.end()) continue;
    link.baseline = known->second.rate;
    const auto watch = network.contention.watched.find(nodes);
    if (watch == network.contention.watched.end()) continue;
    link.preempted = watch->second.contended.has_value();
    link.since = watch->second.contended;
    const auto rate = network.rates.find(nodes);
    if (link.preempted && rate != network.rates.end()) link.now = rate->second.rate;
  }
}

}  // namespace weir::reconcile
