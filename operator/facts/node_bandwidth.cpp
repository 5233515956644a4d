// SPDX-License-Identifier: Apache-2.0
#include "operator/facts/node_bandwidth.h"

#include <algorithm>
#include <iterator>

#include "worker/base/units.h"

namespace weir::facts {
namespace {

constexpr double kSlowShare = 0.8;            // a link below this part of its usual rate is slow
constexpr std::chrono::hours kRemembered{1};  // as long as the window of a baseline
constexpr std::size_t kMostNodes = 64;        // links are inferred for at most 4096 pairs of nodes
// The links of a node share its bandwidth. If a link is slower than the node's fastest one by a
// larger factor, it has another reason.
constexpr double kShared = 4;

// Probes within this factor of their median are of equal links.
constexpr double kAlike = 2;

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

double share_of(const RememberedLink& link) {
  return link.usual > 0 ? std::min(1.0, link.rate / link.usual) : 1.0;
}

// A node as sender (out) or as receiver of its links.
struct NodeSide {
  std::string node;
  bool out = true;
  auto operator<=>(const NodeSide&) const = default;
};

using Pair = std::pair<std::string, std::string>;

// The links that were measured last, at the same time. Rates of different times cannot be compared.
std::vector<RememberedLink> newest_of(const std::vector<RememberedLink>& seen) {
  Time newest{};
  for (const RememberedLink& link : seen) newest = std::max(newest, link.time);
  std::vector<RememberedLink> links;
  std::ranges::copy_if(seen, std::back_inserter(links),
                       [&](const RememberedLink& link) { return link.time == newest; });
  return links;
}

// Whether a link is far below both its usual rate and the fastest link of all. The usual rate alone
// is not enough, since it is a guess until the baseline is known.
class FarBelow {
 public:
  explicit FarBelow(const std::vector<RememberedLink>& seen) {
    for (const RememberedLink& link : seen) fastest_ = std::max(fastest_, link.rate);
  }
  bool operator()(const RememberedLink& link) const {
    return share_of(link) < kSlowShare && kShared * link.rate < fastest_;
  }

 private:
  double fastest_ = 0;
};

// Groups of nodes, as the representative of each node's group. Nodes are in one group if they are
// connected by links that are not slow.
std::map<std::string, std::string> close_nodes(const std::vector<RememberedLink>& seen,
                                               const FarBelow& slow_link) {
  std::map<std::string, std::string> group;
  std::set<Pair> slow;
  for (const RememberedLink& link : seen) {
    group.emplace(link.from, link.from);
    group.emplace(link.to, link.to);
    if (slow_link(link)) slow.insert(std::minmax(link.from, link.to));
  }
  for (const RememberedLink& link : seen) {
    const std::string from = group.at(link.from), to = group.at(link.to);
    if (from == to || slow.contains(std::minmax(link.from, link.to))) continue;
    for (auto& [node, first] : group) {
      if (first == from) first = to;
    }
  }
  return group;
}

}  // namespace

std::map<std::string, NodeShare> slow_nodes(const std::vector<RememberedLink>& seen) {
  std::map<NodeSide, double> best;  // share of the fastest link
  for (const RememberedLink& link : seen) {
    if (link.from == link.to) continue;
    for (const NodeSide& side : {NodeSide{link.from, true}, NodeSide{link.to, false}}) {
      const auto [at, first] = best.emplace(side, share_of(link));
      at->second = std::max(at->second, share_of(link));
    }
  }
  std::vector<const RememberedLink*> unexplained;
  for (const RememberedLink& link : seen) {
    if (link.from != link.to && share_of(link) < kSlowShare) unexplained.push_back(&link);
  }
  const auto explains = [&](const std::string& node, const RememberedLink& link) {
    if (link.from != node && link.to != node) return false;
    const double most = best.at({node, link.from == node});
    return most < kSlowShare && most <= kShared * share_of(link);
  };
  std::map<std::string, NodeShare> slow;
  while (!unexplained.empty()) {
    std::map<std::string, int> count;
    for (const RememberedLink* link : unexplained) {
      for (const std::string& node : {link->from, link->to}) {
        if (explains(node, *link)) ++count[node];
      }
    }
    int most = 0;
    for (const auto& [node, links] : count) most = std::max(most, links);
    if (most == 0) break;  // the paths between nodes are slow, not the nodes
    for (const auto& [node, links] : count) {
      if (links < most) continue;
      for (const RememberedLink* link : unexplained) {
        if (link->from == node && explains(node, *link)) {
          slow[node].out = best.at({node, true});
          slow[node].out_rate = std::max(slow[node].out_rate, link->rate);
        } else if (link->to == node && explains(node, *link)) {
          slow[node].in = best.at({node, false});
          slow[node].in_rate = std::max(slow[node].in_rate, link->rate);
        }
      }
    }
    std::erase_if(unexplained, [&](const RememberedLink* link) {
      return (slow.contains(link->from) && explains(link->from, *link)) ||
             (slow.contains(link->to) && explains(link->to, *link));
    });
  }
  return slow;
}

std::map<std::pair<std::string, std::string>, double> limits_between_groups(
    const std::vector<RememberedLink>& remembered) {
  const std::vector<RememberedLink> seen = newest_of(remembered);
  const FarBelow slow_link(seen);
  const auto group = close_nodes(seen, slow_link);
  struct Between {
    std::vector<const RememberedLink*> links;
    bool all_slow = true;
  };
  std::map<Pair, Between> between;  // by pair of groups, named by their representatives
  for (const RememberedLink& link : seen) {
    const std::string &from = group.at(link.from), &to = group.at(link.to);
    if (from == to) continue;
    Between& all = between[{from, to}];
    all.links.push_back(&link);
    all.all_slow = all.all_slow && slow_link(link);
  }
  std::map<Pair, double> limits;
  for (const auto& [groups, all] : between) {
    double fastest = 0;
    bool apart = false;  // two links share no node
    for (const RememberedLink* a : all.links) {
      fastest = std::max(fastest, a->rate);
      apart = apart || std::ranges::any_of(all.links, [&](const RememberedLink* b) {
                return a->from != b->from && a->to != b->to;
              });
    }
    if (!apart || !all.all_slow) continue;
    for (const auto& [from, from_group] : group) {
      for (const auto& [to, to_group] : group) {
        if (Pair(from_group, to_group) == groups) limits[{from, to}] = fastest;
      }
    }
  }
  return limits;
}

void remember_links(std::vector<RememberedLink>& seen, const std::vector<RememberedLink>& fresh,
                    Time now) {
  for (const RememberedLink& link : fresh) {
    std::erase_if(seen, [&](const RememberedLink& old) {
      return old.from == link.from && old.to == link.to && old.time <= link.time;
    });
    seen.push_back(link);
  }
  std::erase_if(seen, [&](const RememberedLink& link) { return now - link.time > kRemembered; });
}

std::set<std::string> nodes_of(const planner::Cluster& cluster) {
  std::set<std::string> nodes;
  for (const auto& device : cluster.devices) nodes.insert(device.node);
  return nodes;
}

void add_inferred_links(const std::vector<RememberedLink>& seen, planner::Cluster& cluster) {
  std::set<std::pair<std::string, std::string>> known;
  const planner::Cluster at_start = cluster;
  for (const RememberedLink& link : seen) {
    known.emplace(link.from, link.to);
    auto rate = planner::link_between(at_start, link.from, link.to);
    rate.from_node = link.from;
    rate.to_node = link.to;
    rate.bytes_per_second = link.rate;
    cluster.links.push_back(rate);
  }
  const auto nodes = nodes_of(cluster);
  if (nodes.size() > kMostNodes) return;
  const auto slow = slow_nodes(seen);
  const auto limits = limits_between_groups(seen);
  if (slow.empty() && limits.empty()) return;
  for (const std::string& from : nodes) {
    for (const std::string& to : nodes) {
      if (from == to || known.contains({from, to})) continue;
      const auto out = slow.find(from), in = slow.find(to);
      const auto limit = limits.find({from, to});
      const double share = std::min(out == slow.end() ? 1.0 : out->second.out,
                                    in == slow.end() ? 1.0 : in->second.in);
      if (share >= kSlowShare && limit == limits.end()) continue;
      auto rate = planner::link_between(at_start, from, to);
      rate.from_node = from;
      rate.to_node = to;
      if (limit != limits.end()) {
        rate.bytes_per_second = std::min(rate.bytes_per_second, limit->second);
      }
      if (out != slow.end() && out->second.out_rate > 0) {
        rate.bytes_per_second = std::min(rate.bytes_per_second, out->second.out_rate);
      }
      if (in != slow.end() && in->second.in_rate > 0) {
        rate.bytes_per_second = std::min(rate.bytes_per_second, in->second.in_rate);
      }
      cluster.links.push_back(rate);
    }
  }
}

void add_probed_links(const std::vector<protocol::ProbedLink>& probed, planner::Cluster& cluster) {
  std::vector<double> rates, round_trips;
  for (const auto& link : probed) {
    if (link.bytes_per_second <= 0) continue;
    rates.push_back(link.bytes_per_second);
    round_trips.push_back(link.rtt_seconds);
  }
  if (rates.empty()) return;
  const double usual = cluster.default_bytes_per_second = median(rates);
  // Probes of equal links differ, most of all on a busy machine, and a plan must not follow that.
  const auto rate_of = [&](const protocol::ProbedLink& link) {
    const double ratio = link.bytes_per_second / usual;
    return ratio * kAlike >= 1 && ratio <= kAlike ? usual : link.bytes_per_second;
  };
  cluster.default_latency = from_seconds(median(round_trips) / 2);
  std::vector<RememberedLink> seen;
  for (const bool back : {true, false}) {  // later entries win
    for (const auto& link : probed) {
      if (link.bytes_per_second <= 0) continue;
      cluster.links.push_back({back ? link.to_node : link.from_node,
                               back ? link.from_node : link.to_node, rate_of(link),
                               from_seconds(link.rtt_seconds * 0.5)});
      if (back) continue;
      seen.push_back({link.from_node, link.to_node, rate_of(link), usual, Time{}});
    }
  }
  add_inferred_links(seen, cluster);
}

}  // namespace weir::facts
