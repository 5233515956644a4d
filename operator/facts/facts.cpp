// SPDX-License-Identifier: Apache-2.0
#include "operator/facts/facts.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "operator/facts/node_bandwidth.h"
#include "worker/base/text.h"

namespace weir::facts {
namespace {

using Pair = std::pair<std::string, std::string>;  // from, to

constexpr int kNeighbours = 4;  // replicas that a rank reports (worker/engine/statistics.h)

// Pairs of nodes between which the plan in force sends.
std::set<Pair> used_pairs(const schedule::Plan& plan) {
  std::map<std::pair<int, int>, std::string> nodes;  // by replica and stage
  for (const auto& rank : plan.ranks) nodes[{rank.replica, rank.stage}] = rank.node;
  std::set<Pair> pairs;
  const auto add = [&](const std::string& from, std::pair<int, int> place) {
    const auto to = nodes.find(place);
    if (to != nodes.end() && to->second != from) pairs.emplace(from, to->second);
  };
  const int replicas = plan.replica_count();
  for (const auto& [place, node] : nodes) {
    const auto [replica, stage] = place;
    add(node, {replica, stage + 1});
    add(node, {replica, stage - 1});
    for (int i = 1; i <= kNeighbours && i < replicas && !schedule::averages(plan); ++i) {
      add(node, {(replica + replicas - i) % replicas, stage});
    }
  }
  return pairs;
}

// Links of the plan in force that carry so fast that they have no rate: what they carry comes in
// one piece. They count as usual. Without them a path that is slow beside them would look like the
// only one there is.
void add_untimed(const Facts& facts, std::vector<RememberedLink>& links) {
  if (!network_known(facts) || facts.plan == nullptr || links.empty()) return;
  std::set<Pair> known;
  for (const RememberedLink& link : links) known.emplace(link.from, link.to);
  planner::Cluster at_start;
  if (facts.members) add_probed_links(facts.members->links, at_start);
  const Time time = links.front().time;
  for (const auto& [from, to] : used_pairs(*facts.plan)) {
    if (known.contains({from, to})) continue;
    const double rate = planner::link_between(at_start, from, to).bytes_per_second;
    links.push_back({from, to, rate, rate, time});
  }
}

std::vector<RememberedLink> seen_links(const Facts& facts,
                                       const std::vector<estimator::LinkEstimate>& measured) {
  std::vector<RememberedLink> links;
  const Time time = facts.estimates.last_sample.value_or(facts.now);
  for (const auto& link : measured) {
    if (link.now <= 0 || link.from_node.empty() || link.from_node == link.to_node) continue;
    links.push_back({link.from_node, link.to_node, link.now, usual_rate(facts, link), time});
  }
  return links;
}

}  // namespace

double fastest_link(const estimator::Estimates& estimates) {
  double fastest = 0;
  for (const auto* links : {&estimates.links, &estimates.sync_links}) {
    for (const auto& link : *links) {
      if (link.from_node != link.to_node) fastest = std::max(fastest, link.now);
    }
  }
  return fastest;
}

double usual_rate(const Facts& facts, const estimator::LinkEstimate& link) {
  if (link.baseline > 0) return link.baseline;
  if (link.link.direction == estimator::Direction::kSync) {
    return std::max(link.now, facts.fastest_link);
  }
  planner::Cluster at_start;
  if (facts.members) add_probed_links(facts.members->links, at_start);
  return planner::link_between(at_start, link.from_node, link.to_node).bytes_per_second;
}

std::string worst_link_text(const Facts& facts) {
  const estimator::LinkEstimate* link = nullptr;
  double worst_share = 1e300, usual = 0;
  for (const auto& candidate : facts.estimates.links) {
    if (candidate.now <= 0) continue;
    const double rate = usual_rate(facts, candidate);
    const double share = candidate.now / rate;
    if (link != nullptr && share >= worst_share) continue;
    link = &candidate;
    worst_share = share;
    usual = rate;
  }
  if (link == nullptr) return "no link measured";
  std::string text = "link " + link->from_node + "->" + link->to_node + " " +
                     bits_per_second(usual) + "->" + bits_per_second(link->now);
  if (link->since) {
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(facts.now - *link->since).count();
    text += " for " + std::to_string(std::max<std::int64_t>(seconds, 0)) + " s";
  }
  return text;
}

std::vector<RememberedLink> carrying_links(const Facts& facts) {
  std::vector<RememberedLink> links = seen_links(facts, facts.estimates.sync_links);
  const auto between_stages = seen_links(facts, facts.estimates.links);
  links.insert(links.end(), between_stages.begin(), between_stages.end());  // later ones win
  add_untimed(facts, links);
  return links;
}

std::vector<double> free_memory(const Facts& facts) {
  std::vector<double> free(static_cast<std::size_t>(facts.plan->stage_count()), -1);
  for (const auto& rank : facts.plan->ranks) {
    for (const auto& member : facts.report->members) {
      if (member.pod != rank.pod || member.memory_free_bytes < 0 || member.memory_limit_bytes <= 0)
        continue;
      const double part = static_cast<double>(member.memory_free_bytes) /
                          static_cast<double>(member.memory_limit_bytes);
      double& least = free[static_cast<std::size_t>(rank.stage)];
      least = least < 0 ? part : std::min(least, part);
    }
  }
  return free;
}

bool members_live(const Facts& facts, const schedule::Plan& plan) {
  std::set<std::string> live;
  for (const auto& member : facts.members->members) live.insert(member.pod_uid);
  return std::ranges::all_of(plan.ranks,
                             [&](const auto& rank) { return live.contains(rank.pod_uid); });
}

}  // namespace weir::facts
