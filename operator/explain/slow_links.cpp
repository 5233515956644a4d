// SPDX-License-Identifier: Apache-2.0
#include "operator/explain/slow_links.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "worker/base/text.h"

namespace weir::explain {
namespace {

using costing::Conditions;
using estimator::NodePair;

constexpr double kSlowSums = 0.8;  // of the usual rate, as for other links

std::string rates_text(double now, double usual, bool untimed) {
  return bits_per_second(now) + ", usually " +
         (untimed ? "too fast to be timed" : bits_per_second(usual));
}

// Stages on a node, e.g. "stage 1" or "stages 1, 2".
std::string stages_on(const schedule::Plan& plan, const std::set<std::string>& nodes) {
  std::set<int> stages;
  for (const auto& rank : plan.ranks) {
    if (nodes.contains(rank.node)) stages.insert(rank.stage);
  }
  return (stages.size() == 1 ? "stage " : "stages ") + joined(stages, ", ");
}

// A link that is slower than usual for messages between stages, for sums over replicas, or both.
struct SlowLink {
  std::optional<Conditions::Link> usual_link;
  std::optional<double> usual_sums;
  double now = 0, usual = 0;  // bytes per second, of the use that has lost more
  bool untimed = false;
};
using SlowLinks = std::map<NodePair, SlowLink>;

SlowLinks links_of(const Observed& observed) {
  SlowLinks slow;
  for (const NodePair& nodes : observed.slow) {
    const auto now = observed.now.links.find(nodes);
    const auto usual = observed.usual.find(nodes);
    if (now == observed.now.links.end() || usual == observed.usual.end()) continue;
    const double rate = now->second.bytes_per_second;
    if (rate <= 0 || usual->second.rate <= rate) continue;
    SlowLink& link = slow[nodes];
    link.usual_link = now->second;
    link.usual_link->bytes_per_second = link.usual = usual->second.rate;
    link.now = rate;
    link.untimed = usual->second.untimed;
  }
  for (const auto& sums : observed.sum_links) {
    const NodePair nodes{sums.from_node, sums.to_node};
    const auto now = observed.now.sum_links.find(nodes);
    if (now == observed.now.sum_links.end() || now->second <= 0) continue;
    if (now->second > kSlowSums * sums.baseline) continue;
    SlowLink& link = slow[nodes];
    link.usual_sums = sums.baseline;
    if (link.now > 0 && link.now / link.usual <= now->second / sums.baseline) continue;
    link.now = now->second;
    link.usual = sums.baseline;
    link.untimed = false;
  }
  return slow;
}

// Slow links that have one thing in common: a port of `node`, or a pair of nodes.
Deviation of_links(const schedule::Plan& plan, const SlowLinks& links, const std::string& node) {
  Deviation deviation;
  const SlowLink* worst = &links.begin()->second;
  bool sums_only = true;
  std::set<std::string> ends;
  for (const auto& [nodes, link] : links) {
    if (link.usual_link) deviation.links[nodes] = *link.usual_link;
    if (link.usual_sums) deviation.sum_links[nodes] = *link.usual_sums;
    sums_only = sums_only && !link.usual_link;
    ends.insert({nodes.first, nodes.second});
    if (link.now / link.usual < worst->now / worst->usual) worst = &link;
  }
  const std::string rates = rates_text(worst->now, worst->usual, worst->untimed);
  if (!node.empty()) {
    deviation.kind = Kind::kPort;
    deviation.place = node;
    ends.erase(node);
    deviation.text = "port of node " + node + " (" + stages_on(plan, {node}) + "; its links to " +
                     joined(ends, ", ") + "): " + rates;
    return deviation;
  }
  const bool both = links.size() > 1;
  const auto& [from, to] = links.begin()->first;
  deviation.kind = sums_only ? Kind::kSums : Kind::kLink;
  deviation.place = from + (both ? " <-> " : " -> ") + to;
  deviation.text = sums_only ? "sums over replicas on link " + deviation.place + ": " + rates
                             : "link " + deviation.place + " (" + stages_on(plan, {from, to}) +
                                   (both ? "; both directions" : "") + "): " + rates;
  return deviation;
}

}  // namespace

std::vector<Deviation> slow_links_of(const Observed& observed) {
  SlowLinks left = links_of(observed);
  std::vector<Deviation> found;
  while (!left.empty()) {
    std::map<std::string, std::set<std::string>> peers;
    for (const auto& [nodes, link] : left) {
      peers[nodes.first].insert(nodes.second);
      peers[nodes.second].insert(nodes.first);
    }
    const auto most =
        std::ranges::max_element(peers, {}, [](const auto& entry) { return entry.second.size(); });
    const bool port = most->second.size() > 1;
    const NodePair first = left.begin()->first;
    SlowLinks own;
    for (const auto& [nodes, link] : left) {
      const bool same = nodes == first || nodes == NodePair{first.second, first.first};
      const bool joins = nodes.first == most->first || nodes.second == most->first;
      if (port ? joins : same) own[nodes] = link;
    }
    for (const auto& [nodes, link] : own) left.erase(nodes);
    found.push_back(of_links(observed.plan, own, port ? most->first : ""));
  }
  return found;
}

}  // namespace weir::explain
