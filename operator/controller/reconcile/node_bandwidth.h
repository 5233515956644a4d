// SPDX-License-Identifier: Apache-2.0
// What links would carry that carry nothing now. Only the links of the plan in force are measured;
// another rank map uses others. Slow links that meet at one node are its port's fault, so links of
// that node that nobody has measured are as slow. Private to this room; pure.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "operator/controller/reconcile/snapshot.h"
#include "operator/planner/model/cluster.h"

namespace weir::reconcile {

// What a node's port leaves of what it sends and of what it receives: a share of the usual rate,
// and the most that was seen to pass (bytes per second, 0 = not limited).
struct PortShare {
  double out = 1, in = 1;
  double out_rate = 0, in_rate = 0;
};

// Nodes whose ports explain the slow links: those first that explain most; a node whose port has a
// link at its usual rate, or one four times as fast, in that direction does not explain it. Two
// nodes that explain the same equally well are both named: a plan must not count on either.
std::map<std::string, PortShare> slow_ports(const std::vector<SeenLink>& seen);

// What divides nodes: by pair of nodes the most that passes. Two groups of nodes, and between them
// only links that are slow and have less than a quarter of the fastest of all, two of which share
// no node: then it is what joins the groups (a rack's uplink), and no link between them has more.
// One slow link may be a matter of its own. Of those links that were measured last.
std::map<std::pair<std::string, std::string>, double> slow_divides(
    const std::vector<SeenLink>& seen);

// Newer measurements over older ones; forgets those of more than an hour ago.
void remember_links(std::vector<SeenLink>& seen, const std::vector<SeenLink>& fresh, Time now);

// Adds what the workers found when they started. A probe goes one way; the way back counts as the
// same unless it was probed too.
void add_probed_links(const std::vector<protocol::ProbedLink>& probed, planner::Cluster& cluster);

std::set<std::string> nodes_of(const planner::Cluster& cluster);

// Adds to the cluster what is remembered and what follows from slow ports, between its nodes.
void add_inferred_links(const std::vector<SeenLink>& seen, planner::Cluster& cluster);

}  // namespace weir::reconcile
