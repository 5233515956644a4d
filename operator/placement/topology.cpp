// SPDX-License-Identifier: Apache-2.0
#include "operator/placement/topology.h"

#include <tuple>
#include <unordered_map>

namespace weir::placement {

using planner::LinkRate;

constexpr int kMostInTable = 1024;  // servers; the table takes 4 MB

Topology::Topology(const planner::Cluster& cluster) {
  std::unordered_map<std::string, int> index;
  for (const planner::Device& device : cluster.devices) {
    const auto [found, fresh] = index.emplace(device.node, static_cast<int>(names_.size()));
    if (fresh) {
      names_.push_back(device.node);
      devices_on_.emplace_back();
    }
    devices_on_[static_cast<std::size_t>(found->second)].push_back(devices());
    server_of_.push_back(found->second);
  }
  planner::Cluster unlisted = cluster;
  unlisted.links.clear();
  usual_ = link_between(unlisted, "", "-");
  local_ = link_between(unlisted, "", "");
  std::vector<bool> named(names_.size(), false);
  for (const LinkRate& link : cluster.links) {
    const auto from = index.find(link.from_node), to = index.find(link.to_node);
    if (from == index.end() || to == index.end()) continue;
    listed_[{from->second, to->second}] = link;
    if (from == to) continue;
    named[static_cast<std::size_t>(from->second)] = true;
    named[static_cast<std::size_t>(to->second)] = true;
  }
  if (servers() <= kMostInTable) {
    rates_ = {usual_, local_};
    const auto count = static_cast<std::size_t>(servers());
    rate_of_.assign(count * count, 0);
    for (std::size_t s = 0; s < count; ++s) rate_of_[s * count + s] = 1;
    for (const auto& [ends, link] : listed_) {
      rate_of_[static_cast<std::size_t>(ends.first) * count +
               static_cast<std::size_t>(ends.second)] = static_cast<int>(rates_.size());
      rates_.push_back(link);
    }
  }
  // Servers that no link names are alike if their inner links are equal.
  std::map<std::tuple<double, long, double>, int> inside;
  int next = 0;
  for (int server = 0; server < servers(); ++server) {
    const auto own = listed_.find({server, server});
    const LinkRate& local = own == listed_.end() ? local_ : own->second;
    if (named[static_cast<std::size_t>(server)] || local.curve) {
      alike_.push_back(next++);
      continue;
    }
    const auto [found, fresh] = inside.emplace(
        std::tuple(local.bytes_per_second, local.latency.count(), local.available_share), next);
    if (fresh) ++next;
    alike_.push_back(found->second);
  }
}

const LinkRate& Topology::link(int from_device, int to_device) const {
  const int from = server_of(from_device), to = server_of(to_device);
  if (!rate_of_.empty()) {
    const auto at = static_cast<std::size_t>(from) * names_.size() + static_cast<std::size_t>(to);
    return rates_[static_cast<std::size_t>(rate_of_[at])];
  }
  const auto found = listed_.find({from, to});
  if (found != listed_.end()) return found->second;
  return from == to ? local_ : usual_;
}

}  // namespace weir::placement
