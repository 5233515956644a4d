// SPDX-License-Identifier: Apache-2.0
// The workers' segments tell usual rates of links, contended links and what they cost
// (operator/estimator/README.md "Contention").
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "operator/adaptation/costing/conditions.h"
#include "operator/controller/reconcile/plans/explain.h"
#include "operator/controller/reconcile/plans/plans.h"
#include "operator/facts/planning.h"
#include "operator/planner/model/stage_costs.h"
#include "worker/base/text.h"
#include "worker/base/utf8.h"

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

std::vector<LinkCodecs> codecs_in_force(const facts::Facts& facts, const planner::Model& model) {
  const schedule::Plan& plan = *facts.plan;
  std::vector<LinkCodecs> result;
  if (plan.codecs.raw()) return result;
  const auto boundaries = planner::costs_of(model, cluster_of(facts), plan).boundary_bytes;
  const std::int64_t messages = plan.step_micro_batches();  // one way
  for (std::size_t b = 0; b < boundaries.size(); ++b) {
    const int boundary = static_cast<int>(b);
    LinkCodecs link{.boundary = boundary,
                    .forward = codec_of(plan.codecs.forward, boundary),
                    .backward = codec_of(plan.codecs.backward, boundary)};
    if (link.forward == schedule::Codec::kRaw && link.backward == schedule::Codec::kRaw) continue;
    for (const bool forward : {true, false}) {
      link.payload_bytes += messages * boundaries[b];
      link.wire_bytes +=
          messages * planner::wire_bytes(model, plan, boundary, forward, boundaries[b]);
    }
    for (const protocol::SegmentLink& told : facts.report->segment->links) {
      if (told.boundary != boundary) continue;
      link.rounding_error = std::max(link.rounding_error, told.rounding_error);
    }
    result.push_back(link);
  }
  return result;
}

// Nodes of the sender and of the receiver; "" = the plan has no such link.
NodePair nodes_of(const schedule::Plan& plan, const protocol::SegmentLink& link) {
  NodePair nodes;
  for (const schedule::RankPlace& rank : plan.ranks) {
    if (rank.replica != link.replica) continue;
    if (rank.stage == link.boundary) (link.forward ? nodes.first : nodes.second) = rank.node;
    if (rank.stage == link.boundary + 1) (link.forward ? nodes.second : nodes.first) = rank.node;
  }
  return nodes;
}

std::string rate_text(const std::map<NodePair, estimator::SegmentRate>& rates,
                      const NodePair& nodes) {
  const auto known = rates.find(nodes);
  return known != rates.end() && known->second.rate > 0 ? bits_per_second(known->second.rate)
                                                        : "too fast to be timed";
}

// Tells of links whose senders have chosen another number of connections. Memory has the rates of
// the segment before. A new generation begins with one again, which is no choice.
void tell_connections(const View& view, Draft& draft, const SegmentRates& now) {
  NetworkMemory& memory = draft.adaptation.network;
  const protocol::Report& report = view.snapshot.report->body;
  if (now.links.empty()) return;  // too few steps yet
  const std::pair<std::uint32_t, int> generation{report.plan_revision, report.incarnation};
  const bool fresh = std::exchange(memory.connections_of, generation) != generation;
  if (fresh) memory.connections.clear();
  for (const protocol::SegmentLink& link : report.segment->links) {
    constexpr int kMost = 16;
    const NodePair nodes = nodes_of(*view.plan, link);
    const int count = std::clamp(link.connections, 1, kMost);
    if (nodes.first.empty() || nodes.second.empty()) continue;
    const auto [known, first] =
        memory.connections.try_emplace({link.replica, link.boundary, link.forward}, count);
    const int before = std::exchange(known->second, count);
    if (first || before == count) continue;
    draft.event("Normal", "LinkConnectionsChanged",
                "link " + nodes.first + "->" + nodes.second + ": " + std::to_string(before) +
                    " -> " + std::to_string(count) + " connections, " +
                    rate_text(memory.rates, nodes) + " -> " + rate_text(now.links, nodes) +
                    (count > before ? ": each flow was capped, the port was not full"
                                    : ": fewer carry as much"),
                "Observe");
  }
}

// Tells of nodes that do not allow the congestion control of the spec. Members with another one are
// from before an edit.
void tell_fallbacks(const View& view, Draft& draft) {
  if (!view.snapshot.members) return;
  for (const protocol::Member& member : view.snapshot.members->body.members) {
    const std::optional<protocol::TransportFallback>& fallback = member.fallback;
    if (!fallback || fallback->wanted != view.spec().congestion_control) continue;
    std::set<std::pair<std::string, std::string>>& told = draft.adaptation.network.fallbacks;
    if (!told.emplace(member.node, fallback->wanted).second) continue;
    constexpr std::size_t kMost = 512;  // bytes
    draft.event("Warning", "TransportFallback", one_line(text_of(*fallback, member.node), kMost),
                "Observe");
  }
}

}  // namespace

void judge_network(const View& view, Draft& draft, estimator::Estimates& estimates) {
  tell_fallbacks(view, draft);
  auto& network = draft.adaptation.network;
  const auto& report = view.snapshot.report;
  const bool told = view.plan != nullptr && report && report->body.segment &&
                    report->body.segment->revision == view.plan->revision;
  if (!told) {
    network.waterfall.reset();
    network.codecs_in_force.clear();
  }
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
      explain_step({facts, *model, evidence, usual, slow, estimator::may_be_slow(segment, usual)},
                   network);
      network.codecs_in_force = codecs_in_force(facts, *model);
      network.cost_seconds = cost.seconds;
      network.cost_part = cost.saving.part;
      tell_connections(view, draft, segment);
      network.usual = std::move(usual);
      // A segment that has just begun tells no rates yet.
      if (!segment.links.empty()) network.rates = segment.links;
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
