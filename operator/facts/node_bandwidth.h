// SPDX-License-Identifier: Apache-2.0
// Estimates the bandwidth of links that carry nothing now. Only the links of the plan in force are
// measured, but another rank map uses others. If all slow links meet at one node, the node itself
// is slow, so its unmeasured links are assumed to be slow, too. Pure.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "operator/estimator/estimates.h"
#include "operator/planner/model/cluster.h"
#include "worker/protocol/messages.h"

namespace weir::facts {

using Time = estimator::SystemTime;

// The last measurement of a link between two nodes.
struct RememberedLink {
  std::string from, to;
  double rate = 0, usual = 0;  // bytes per second; usual: baseline, or rate of the workers' probe
  Time time{};
};

// Bandwidth that a slow node has for sending (out) and receiving (in).
struct NodeShare {
  double out = 1, in = 1;            // share of the usual rate, 0 .. 1
  double out_rate = 0, in_rate = 0;  // bytes per second of its fastest slow link; 0 = no limit
};

// The nodes that explain the slow links, by name; the node that explains most links is taken first.
// A node does not explain a slow link if it has another link in that direction at its usual rate or
// four times as fast. If two nodes explain equally many links, both count as slow, because a plan
// must not rely on either.
std::map<std::string, NodeShare> slow_nodes(const std::vector<RememberedLink>& seen);

// Limits between two groups of nodes that are joined by a slow path, such as a rack's uplink: bytes
// per second by pair of nodes. The path is slow if all links between the groups are slow and below
// a quarter of the fastest link of all, and two of these links share no node; a single slow link
// may have its own reason. Only the links that were measured last count.
std::map<std::pair<std::string, std::string>, double> limits_between_groups(
    const std::vector<RememberedLink>& seen);

// Replaces older measurements in `seen` by newer ones and forgets those that are over an hour old.
void remember_links(std::vector<RememberedLink>& seen, const std::vector<RememberedLink>& fresh,
                    Time now);

std::set<std::string> nodes_of(const planner::Cluster& cluster);

// Adds the remembered links to the cluster, and limits links between its nodes that are slow
// because of a slow node or a slow path between groups.
void add_inferred_links(const std::vector<RememberedLink>& seen, planner::Cluster& cluster);

// Adds the rates that the workers probed when they started. A probe has one direction; the other
// direction counts as equal unless it was probed, too. Links that nobody probed have the median of
// the probed ones, or less where a slow node or path explains what was probed. Probes within a
// factor of two of their median count as equal to it.
void add_probed_links(const std::vector<protocol::ProbedLink>& probed, planner::Cluster& cluster);

}  // namespace weir::facts
