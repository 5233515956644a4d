// SPDX-License-Identifier: Apache-2.0
#include "operator/explain/deviations.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "worker/base/text.h"

namespace weir::explain {
namespace {

using costing::Conditions;
using estimator::NodePair;
using protocol::StepPart;

constexpr double kSlowDevice = 1.08;  // over its usual time
constexpr double kAllSlower = 1.05;   // the same of the job's common factor
constexpr double kNeverUsual = 1.5;   // over the profile and the job's common factor
constexpr double kSlowSums = 0.8;     // of the usual rate, as for other links
constexpr double kLeastPart = 0.005;  // of a step, for what costs nothing that is worth a line
constexpr double kMostData = 0.95;    // of forwards that load it
constexpr double kLeastLeft = 0.05;   // of a time without what exceeds the usual one

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

SlowLinks slow_links_of(const Observed& observed) {
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

// A port explains the slow links to more than one other node. Those of the node with most of them
// come first.
std::vector<Deviation> links_of(const Observed& observed) {
  SlowLinks left = slow_links_of(observed);
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

// The lower median, since few devices are slow.
std::optional<Slowness> lower_median(std::vector<Slowness> all) {
  if (all.empty()) return std::nullopt;
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>((all.size() - 1) / 2);
  std::ranges::nth_element(all, middle, {}, [](const Slowness& one) { return sum(one); });
  return *middle;
}
double lower_median(std::vector<double> all) {
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>((all.size() - 1) / 2);
  std::ranges::nth_element(all, middle);
  return *middle;
}

Slowness times(const Slowness& slowness, double factor) {
  return {slowness.first * factor, slowness.second * factor};
}

std::string key_of(const schedule::Plan& plan, const schedule::RankPlace& rank) {
  const auto& range = plan.stages[static_cast<std::size_t>(rank.stage)];
  return device_key(rank.pod, range.first, range.last);
}

std::string rank_text(const schedule::Plan& plan, const schedule::RankPlace& rank) {
  std::string text =
      "rank " + std::to_string(&rank - plan.ranks.data()) + " (stage " + std::to_string(rank.stage);
  if (plan.replica_count() > 1) text += " of replica " + std::to_string(rank.replica);
  return text + ") on " + rank.node;
}

using Devices = std::map<std::string, Slowness>;  // by pod

const schedule::RankPlace* place_of(const Observed& observed, const protocol::SegmentRank& rank) {
  for (const auto& place : observed.plan.ranks) {
    if (place.replica == observed.replica && place.stage == rank.stage) return &place;
  }
  return nullptr;
}

// Seconds that all forwards of a step take on that rank.
double forwards_of(const Observed& observed, const protocol::SegmentRank& rank) {
  const auto at = static_cast<std::size_t>(observed.replica);
  if (at >= observed.plan.micro_batches.size()) return 0;
  return observed.plan.micro_batches[at] * rank.forward_seconds;
}

// The part of a rank's forwards that loads its data.
double data_part(const Observed& observed, const protocol::SegmentRank& rank) {
  const double forwards = forwards_of(observed, rank);
  if (!rank.parts || forwards <= 0) return 0;
  return std::clamp(rank.parts->of(StepPart::kData) / forwards, 0.0, kMostData);
}

// Without loading data.
Devices computing(const Observed& observed) {
  Devices devices = observed.now.slowness;
  for (const auto& rank : observed.ranks) {
    const auto* place = place_of(observed, rank);
    const auto own = place != nullptr ? devices.find(place->pod) : devices.end();
    if (own != devices.end()) own->second.first *= 1 - data_part(observed, rank);
  }
  return devices;
}

// The same stage in other replicas.
std::optional<Slowness> peers_of(const schedule::Plan& plan, const Devices& devices,
                                 const schedule::RankPlace& rank) {
  std::vector<Slowness> peers;
  for (const auto& other : plan.ranks) {
    if (other.stage != rank.stage || other.replica == rank.replica) continue;
    const auto known = devices.find(other.pod);
    if (known != devices.end()) peers.push_back(known->second);
  }
  return lower_median(std::move(peers));
}

// By how much all devices are slower than each of them usually is; 1 = not, or unknown.
double common_factor(const schedule::Plan& plan, const Devices& devices,
                     const DeviceHistory& history) {
  std::vector<double> moved;
  for (const auto& rank : plan.ranks) {
    const auto own = devices.find(rank.pod);
    const auto usual = usual_slowness(history, key_of(plan, rank));
    if (own != devices.end() && usual) moved.push_back(sum(own->second) / sum(*usual));
  }
  if (moved.size() < 2) return 1;
  const double common = lower_median(moved);
  return common >= kAllSlower ? common : 1;
}

std::vector<Deviation> slow_devices(const Observed& observed, const DeviceHistory& history) {
  const schedule::Plan& plan = observed.plan;
  const Devices devices = computing(observed);
  std::vector<Deviation> found;
  const double common = common_factor(plan, devices, history);
  if (common > 1) {
    Deviation& slower = found.emplace_back();
    slower.kind = Kind::kDevices;
    slower.text = "all devices compute " + number(100 * (common - 1), 0) + " % slower than usual";
    for (const auto& [pod, slowness] : devices)
      slower.excess[pod] = times(slowness, 1 - 1 / common);
  }
  std::vector<Slowness> all;
  for (const auto& [pod, slowness] : devices) all.push_back(slowness);
  const auto typical = lower_median(std::move(all));
  for (const auto& rank : plan.ranks) {
    const auto own = devices.find(rank.pod);
    if (own == devices.end()) continue;
    const auto slow = [&](const std::optional<Slowness>& usual, double least) {
      return usual && sum(own->second) >= least * sum(*usual);
    };
    const auto peers = peers_of(plan, devices, rank);
    auto usual = usual_slowness(history, key_of(plan, rank));
    if (usual) usual = times(*usual, common);
    const char* than = "usual";
    if (slow(peers, kSlowDevice)) {
      usual = peers;
      than = "the same stage of other replicas";
    } else if (!slow(usual, kSlowDevice)) {
      if (!slow(typical, kNeverUsual)) continue;
      usual = typical;
      than = "its profile and the other devices promise";
    }
    Deviation& slower = found.emplace_back();
    slower.kind = Kind::kDevice;
    slower.place = rank.pod;
    slower.text = rank_text(plan, rank) + " computes " +
                  number(100 * (sum(own->second) / sum(*usual) - 1), 0) + " % slower than " + than;
    slower.excess[rank.pod] = {std::max(0.0, own->second.first - usual->first),
                               std::max(0.0, own->second.second - usual->second)};
  }
  return found;
}

// Seconds of pauses by rank, over what all ranks have between their ops.
std::vector<double> pauses_of(const Observed& observed) {
  std::vector<double> others;
  for (const auto& rank : observed.ranks) {
    others.push_back(rank.parts ? rank.parts->of(StepPart::kOther) : 0);
  }
  if (others.empty()) return others;
  const double usual = lower_median(others);
  for (double& own : others) {
    own = std::max(0.0, own - usual);
    if (own < kLeastPart * observed.step_seconds) own = 0;
  }
  return others;
}

std::string milliseconds(double seconds) {
  return number(1000 * seconds, 0) + " ms a step";
}

std::vector<Deviation> pauses_and_data(const Observed& observed) {
  std::vector<Deviation> found;
  const auto pauses = pauses_of(observed);
  for (std::size_t i = 0; i < observed.ranks.size(); ++i) {
    const auto& rank = observed.ranks[i];
    const auto* place = place_of(observed, rank);
    const double forwards = forwards_of(observed, rank);
    if (place == nullptr || forwards <= 0) continue;
    const auto own = observed.now.slowness.find(place->pod);
    if (own == observed.now.slowness.end()) continue;
    const auto add = [&](Kind kind, const char* does, double seconds) {
      Deviation& deviation = found.emplace_back();
      deviation.kind = kind;
      deviation.place = place->pod;
      deviation.text = rank_text(observed.plan, *place) + does + milliseconds(seconds);
      deviation.excess[place->pod] = {own->second.first * seconds / forwards, 0};
    };
    const double data = data_part(observed, rank) * forwards;
    if (pauses[i] > 0) add(Kind::kPauses, " pauses between its ops for ", pauses[i]);
    if (data >= kLeastPart * observed.step_seconds) add(Kind::kData, " loads its data for ", data);
  }
  return found;
}

}  // namespace

std::map<std::string, Slowness> devices_of(const Observed& observed) {
  std::map<std::string, Slowness> kept;
  const Devices devices = computing(observed);
  for (const auto& rank : observed.plan.ranks) {
    const auto own = devices.find(rank.pod);
    if (own != devices.end()) kept[key_of(observed.plan, rank)] = own->second;
  }
  return kept;
}

Conditions with_pauses(const Observed& observed) {
  Conditions now = observed.now;
  const auto pauses = pauses_of(observed);
  for (std::size_t i = 0; i < observed.ranks.size(); ++i) {
    const auto* place = place_of(observed, observed.ranks[i]);
    const double forwards = forwards_of(observed, observed.ranks[i]);
    if (place == nullptr || forwards <= 0 || pauses[i] <= 0) continue;
    const auto own = now.slowness.find(place->pod);
    if (own != now.slowness.end()) own->second.first *= 1 + pauses[i] / forwards;
  }
  return now;
}

std::vector<Deviation> deviations_of(const Observed& observed, const DeviceHistory& history) {
  std::vector<Deviation> all = links_of(observed);
  for (const auto& more : {slow_devices(observed, history), pauses_and_data(observed)}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

Conditions without(Conditions now, const Deviation& deviation) {
  for (const auto& [nodes, link] : deviation.links) now.links[nodes] = link;
  for (const auto& [nodes, rate] : deviation.sum_links) now.sum_links[nodes] = rate;
  for (const auto& [pod, excess] : deviation.excess) {
    const auto own = now.slowness.find(pod);
    if (own == now.slowness.end()) continue;
    auto& [forward, backward] = own->second;
    forward = std::max(kLeastLeft * forward, forward - excess.first);
    backward = std::max(kLeastLeft * backward, backward - excess.second);
  }
  return now;
}

}  // namespace weir::explain
