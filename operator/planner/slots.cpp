// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/slots.h"

#include <algorithm>
#include <set>

#include "operator/planner/linear.h"
#include "worker/base/units.h"

namespace weir::planner {
namespace {

constexpr std::size_t kMostOrders = 5040;  // 7!

// A rate that depends on the message's size is taken at that of large messages; what is reported
// uses the true one.
LinkTime time_of(const LinkRate& rate) {
  constexpr std::int64_t kLargeMessage = 16'000'000;
  return {.seconds_per_byte = 1 / effective_rate(rate, kLargeMessage),
          .latency = to_seconds(rate.latency)};
}

template <class T>
int index_in(std::vector<T>& list, const T& value) {
  const auto found = std::find(list.begin(), list.end(), value);
  if (found != list.end()) return static_cast<int>(found - list.begin());
  list.push_back(value);
  return static_cast<int>(list.size()) - 1;
}

void add_kind(Slots& slots, const Device& device, int index, std::int64_t usable) {
  Kind kind;
  kind.device_class = static_cast<ClassIndex>(index_in(slots.classes, device.device_class));
  kind.usable_bytes = usable;
  kind.first_stage = device.first_stage;
  kind.last_stage = device.last_stage;
  const auto same = std::find_if(slots.kinds.begin(), slots.kinds.end(), [&](const Kind& other) {
    return other.device_class == kind.device_class && other.usable_bytes == kind.usable_bytes &&
           other.first_stage == kind.first_stage && other.last_stage == kind.last_stage;
  });
  const auto place = same - slots.kinds.begin();
  if (same == slots.kinds.end()) slots.kinds.push_back(std::move(kind));
  slots.kinds[static_cast<std::size_t>(place)].devices.push_back(index);
  slots.kind_of.push_back(static_cast<int>(place));
}

// Every different link of a pair in use, to see whether there is more than one.
std::vector<LinkTime> links_in_use(const Slots& slots, std::size_t nodes, std::size_t devices) {
  std::vector<LinkTime> seen;
  for (const auto& [pair, link] : slots.between) index_in(seen, link);
  if (slots.between.size() < nodes * (nodes - 1)) index_in(seen, slots.usual);
  if (devices > nodes) index_in(seen, slots.local);
  return seen;
}

// Goes through the orders of devices of the same kinds; devices on one node are alike.
class OrderSearch {
 public:
  OrderSearch(const Slots& slots, const Chain& chain, const Shape& shape, const Cut& cut)
      : slots_(slots), chain_(chain), shape_(shape), cut_(cut), used_(slots.kind_of.size()) {}

  double seconds(const std::vector<int>& devices) const {
    return step_seconds(pipeline_of(chain_, slots_, cut_, links_of(slots_, devices)), shape_);
  }
  // Nothing if there are more than kMostOrders.
  std::vector<int> exhaustive() {
    visit();
    return orders_ > kMostOrders ? std::vector<int>{} : best_;
  }
  std::vector<int> swaps(std::vector<int> devices) const {
    double now = seconds(devices);
    for (bool better = true; better;) {
      better = false;
      for (std::size_t s = 0; s < devices.size(); ++s) {
        for (const int device : slots_.kinds[static_cast<std::size_t>(cut_.kinds[s])].devices) {
          std::vector<int> other = devices;
          const auto held = std::find(other.begin(), other.end(), device);
          if (held != other.end()) *held = other[s];
          other[s] = device;
          const double then = seconds(other);
          if (then >= now * (1 - kNoise)) continue;
          devices = std::move(other);
          now = then;
          better = true;
        }
      }
    }
    return devices;
  }

 private:
  static constexpr double kNoise = 1e-12;  // sums in another order are no gain

  void visit() {
    if (orders_ > kMostOrders) return;
    const std::size_t s = chosen_.size();
    if (s == cut_.kinds.size()) {
      ++orders_;
      const double now = seconds(chosen_);
      if (best_.empty() || now < best_seconds_ * (1 - kNoise)) {
        best_ = chosen_;
        best_seconds_ = now;
      }
      return;
    }
    std::set<int> nodes;
    for (const int device : slots_.kinds[static_cast<std::size_t>(cut_.kinds[s])].devices) {
      const auto d = static_cast<std::size_t>(device);
      if (used_[d] || !nodes.insert(slots_.node_of[d]).second) continue;
      used_[d] = true;
      chosen_.push_back(device);
      visit();
      chosen_.pop_back();
      used_[d] = false;
    }
  }

  const Slots& slots_;
  const Chain& chain_;
  const Shape& shape_;
  const Cut& cut_;
  std::vector<bool> used_;
  std::vector<int> chosen_, best_;
  double best_seconds_ = 0;
  std::size_t orders_ = 0;
};

}  // namespace

Slots slots_of(const Cluster& cluster) {
  Slots slots;
  std::vector<std::string> nodes;
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    add_kind(slots, cluster.devices[d], static_cast<int>(d),
             usable_bytes(cluster, cluster.devices[d]));
    slots.node_of.push_back(index_in(nodes, cluster.devices[d].node));
  }
  slots.local = time_of(link_between(cluster, "", ""));
  slots.usual = time_of({"", "", cluster.default_bytes_per_second, cluster.default_latency,
                         cluster.default_share, cluster.default_curve});
  for (const LinkRate& rate : cluster.links) {
    const auto from = std::find(nodes.begin(), nodes.end(), rate.from_node);
    const auto to = std::find(nodes.begin(), nodes.end(), rate.to_node);
    if (from == nodes.end() || to == nodes.end() || from == to) continue;
    slots.between[{static_cast<int>(from - nodes.begin()), static_cast<int>(to - nodes.begin())}] =
        time_of(rate);  // the last entry of a pair counts, as in link_between
  }
  const std::vector<LinkTime> seen = links_in_use(slots, nodes.size(), cluster.devices.size());
  slots.uniform = seen.size() <= 1;
  slots.best = seen.empty() ? slots.usual : seen.front();
  for (const LinkTime& link : seen) {
    slots.best.seconds_per_byte = std::min(slots.best.seconds_per_byte, link.seconds_per_byte);
    slots.best.latency = std::min(slots.best.latency, link.latency);
  }
  return slots;
}

LinkTime link_of(const Slots& slots, int from_device, int to_device) {
  const int from = slots.node_of[static_cast<std::size_t>(from_device)];
  const int to = slots.node_of[static_cast<std::size_t>(to_device)];
  if (from == to) return slots.local;
  const auto found = slots.between.find({from, to});
  return found == slots.between.end() ? slots.usual : found->second;
}

std::vector<BoundaryLink> links_of(const Slots& slots, const std::vector<int>& devices) {
  std::vector<BoundaryLink> links;
  for (std::size_t s = 0; s + 1 < devices.size(); ++s) {
    links.push_back({.forward = link_of(slots, devices[s], devices[s + 1]),
                     .backward = link_of(slots, devices[s + 1], devices[s])});
  }
  return links;
}

std::vector<int> first_fit_kinds(const Slots& slots, int stages, int* stuck) {
  std::vector<std::size_t> used(slots.kinds.size(), 0);
  std::vector<int> result;
  for (int s = 0; s < stages; ++s) {
    int chosen = -1;
    for (std::size_t k = 0; k < slots.kinds.size(); ++k) {
      const Kind& kind = slots.kinds[k];
      if (s < kind.first_stage || s > kind.last_stage || used[k] == kind.devices.size()) continue;
      if (chosen < 0 ||
          kind.last_stage < slots.kinds[static_cast<std::size_t>(chosen)].last_stage) {
        chosen = static_cast<int>(k);
      }
    }
    if (chosen < 0) {
      *stuck = s;
      return {};
    }
    ++used[static_cast<std::size_t>(chosen)];
    result.push_back(chosen);
  }
  return result;
}

std::vector<int> devices_in_order(const Slots& slots, const std::vector<int>& kinds) {
  std::vector<std::size_t> used(slots.kinds.size(), 0);
  std::vector<int> devices;
  for (const int kind : kinds) {
    const auto k = static_cast<std::size_t>(kind);
    devices.push_back(slots.kinds[k].devices[used[k]++]);
  }
  return devices;
}

std::vector<int> place(const Slots& slots, const std::vector<int>& devices, const Chain& chain,
                       const Shape& shape, const Cut& cut) {
  if (slots.uniform) return devices;
  OrderSearch search(slots, chain, shape, cut);
  std::vector<int> best = search.exhaustive();
  if (best.empty()) best = search.swaps(devices);
  return best;
}

}  // namespace weir::planner
