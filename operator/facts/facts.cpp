// SPDX-License-Identifier: Apache-2.0
#include "operator/facts/facts.h"

#include <algorithm>
#include <set>

#include "operator/facts/node_bandwidth.h"

namespace weir::facts {
namespace {

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

std::vector<RememberedLink> carrying_links(const Facts& facts) {
  std::vector<RememberedLink> links = seen_links(facts, facts.estimates.sync_links);
  const auto between_stages = seen_links(facts, facts.estimates.links);
  links.insert(links.end(), between_stages.begin(), between_stages.end());  // later ones win
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
