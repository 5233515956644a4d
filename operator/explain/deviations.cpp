// SPDX-License-Identifier: Apache-2.0
#include "operator/explain/deviations.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "operator/explain/lack_of_cpu.h"
#include "operator/explain/slow_links.h"
#include "worker/base/text.h"

namespace weir::explain {
namespace {

using costing::Conditions;
using protocol::SegmentRank;
using protocol::StepPart;

constexpr double kSlowDevice = 1.08;  // over its usual time
constexpr double kAllSlower = 1.05;   // the same of the job's common factor
constexpr double kNeverUsual = 1.5;   // over the profile and the job's common factor
constexpr double kMostData = 0.95;    // of forwards that load it
constexpr double kLeastLeft = 0.05;   // of a time without what exceeds the usual one

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

using Devices = std::map<std::string, Slowness>;  // by pod

const schedule::RankPlace* place_of(const Observed& observed, const SegmentRank& rank) {
  for (const auto& place : observed.plan.ranks) {
    if (place.replica == rank.replica && place.stage == rank.stage) return &place;
  }
  return nullptr;
}

// The part of a rank's forwards that loads its data.
double data_part(const Observed& observed, const SegmentRank& rank) {
  const double forwards = passes_of(observed, rank).first;
  if (!rank.parts || forwards <= 0) return 0;
  return std::clamp(rank.parts->of(StepPart::kData) / forwards, 0.0, kMostData);
}

// Seconds of pauses in forwards and in backwards: workers tell them as `other`, but not as part of
// an op, while the times of ops have them (worker/engine/README.md "Parts of a step").
Slowness pauses_in_ops(const Observed& observed, const SegmentRank& rank) {
  const auto [forwards, backwards] = passes_of(observed, rank);
  if (!rank.parts) return {};
  const double computes = rank.parts->of(StepPart::kForward);
  const double returns = rank.parts->of(StepPart::kBackward) + rank.parts->of(StepPart::kWeights);
  if (computes <= 0 || returns <= 0) return {};
  return {std::max(0.0, forwards - computes - rank.parts->of(StepPart::kData)),
          std::max(0.0, backwards - returns)};
}

// The part of loading data in the forwards of the same stage in other replicas, by pod. Only one
// replica tells its parts. Others that share its storage load as long: what their forwards take
// beyond its computing counts as data, up to what it loads.
Devices others_loading(const Observed& observed, const SegmentRank& rank) {
  Devices others;
  const double loads = data_part(observed, rank) * rank.forward_seconds;
  const auto* place = place_of(observed, rank);
  if (place == nullptr || loads <= 0) return others;
  const auto own = observed.now.slowness.find(place->pod);
  if (own == observed.now.slowness.end()) return others;
  const double computes = own->second.first * (1 - data_part(observed, rank));
  for (const schedule::RankPlace& other : observed.plan.ranks) {
    const auto known = observed.now.slowness.find(other.pod);
    if (other.stage != rank.stage || other.replica == rank.replica) continue;
    if (known == observed.now.slowness.end()) continue;
    const double forward = known->second.first;
    const SegmentRank* told = told_by(observed, other);
    const double of_second = told != nullptr && told->forward_seconds > 0
                                 ? forward / told->forward_seconds
                                 : own->second.first / rank.forward_seconds;
    others[other.pod] = {std::clamp(forward - computes, 0.0, loads * of_second), 0};
  }
  return others;
}

// Without loading data and pauses.
Devices computing(const Observed& observed) {
  Devices devices = observed.now.slowness;
  for (const auto& rank : observed.ranks) {
    const auto* place = place_of(observed, rank);
    const auto own = place != nullptr ? devices.find(place->pod) : devices.end();
    const auto [forwards, backwards] = passes_of(observed, rank);
    if (own == devices.end() || forwards <= 0 || backwards <= 0) continue;
    const auto paused = pauses_in_ops(observed, rank);
    own->second.first *=
        std::max(kLeastLeft, 1 - data_part(observed, rank) - paused.first / forwards);
    own->second.second *= std::max(kLeastLeft, 1 - paused.second / backwards);
    for (const auto& [pod, loading] : others_loading(observed, rank)) {
      devices[pod].first -= loading.first;
    }
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
struct Paused {
  double between = 0;  // ops
  Slowness in = {};    // forwards, backwards
  double all() const { return between + sum(in); }
};
std::vector<Paused> pauses_of(const Observed& observed) {
  std::vector<double> others;
  for (const auto& rank : observed.ranks) {
    others.push_back(rank.parts ? rank.parts->of(StepPart::kOther) : 0);
  }
  std::vector<Paused> pauses(others.size());
  if (others.empty()) return pauses;
  const double usual = lower_median(others);
  for (std::size_t i = 0; i < others.size(); ++i) {
    const double own = others[i] - usual;
    if (own < kLeastPart * observed.step_seconds) continue;
    pauses[i].in = pauses_in_ops(observed, observed.ranks[i]);
    pauses[i].between = std::max(0.0, own - sum(pauses[i].in));
  }
  return pauses;
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
    const auto [forwards, backwards] = passes_of(observed, rank);
    if (place == nullptr || forwards <= 0) continue;
    const auto own = observed.now.slowness.find(place->pod);
    if (own == observed.now.slowness.end()) continue;
    const auto add = [&](Kind kind, const std::string& does, const Slowness& seconds) {
      Deviation& deviation = found.emplace_back();
      deviation.kind = kind;
      deviation.place = place->pod;
      deviation.text = rank_text(observed.plan, *place) + does + milliseconds(sum(seconds));
      deviation.excess[place->pod] = {
          own->second.first * seconds.first / forwards,
          backwards > 0 ? own->second.second * seconds.second / backwards : 0};
    };
    const double data = data_part(observed, rank) * forwards;
    const Paused& paused = pauses[i];
    if (paused.all() > 0) {
      add(Kind::kPauses,
          std::string(" pauses ") + (sum(paused.in) > 0 ? "in and " : "") + "between its ops for ",
          {paused.between + paused.in.first, paused.in.second});
      found.back().at_random = paused.all();
    }
    if (data >= kLeastPart * observed.step_seconds) {
      add(Kind::kData, " loads its data for ", {data, 0});
      const double least = own->second.first * data_part(observed, rank) / 2;
      const auto others = others_loading(observed, rank);
      found.back().excess.insert(others.begin(), others.end());
      if (std::ranges::any_of(others, [&](const auto& one) { return one.second.first > least; })) {
        found.back().text += ", and so do other replicas";
      }
    }
  }
  return found;
}

// The ranks whose copies for a save take longer than those of most. Steps tell what a save costs,
// since much of a copy may hide in waits.
std::vector<Deviation> slow_saves(const Observed& observed) {
  if (observed.save_every <= 0 || observed.told.empty()) return {};
  std::vector<double> all;
  for (const auto& rank : observed.told) all.push_back(rank.save_seconds);
  const double usual = lower_median(all);
  const auto slowest = std::ranges::max_element(observed.told, {}, &SegmentRank::save_seconds);
  const double beyond = std::min(slowest->save_seconds, observed.save_seconds) - usual;
  if (beyond < kLeastPart * observed.step_seconds * observed.save_every) return {};
  const auto* place = place_of(observed, *slowest);
  if (place == nullptr) return {};
  Deviation slow{.kind = Kind::kSave, .place = place->pod, .text = {}};
  slow.text = rank_text(observed.plan, *place) + " copies its state for " +
              number(1000 * slowest->save_seconds, 0) + " ms for a save, most ranks for " +
              number(1000 * usual, 0) + " ms, each " + number(observed.save_every, 0) + " steps";
  slow.measured = beyond / observed.save_every;
  return {slow};
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
    const double forwards = passes_of(observed, observed.ranks[i]).first;
    if (place == nullptr || forwards <= 0 || pauses[i].between <= 0) continue;
    const auto own = now.slowness.find(place->pod);
    if (own != now.slowness.end()) own->second.first *= 1 + pauses[i].between / forwards;
  }
  return now;
}

const SegmentRank* told_by(const Observed& observed, const schedule::RankPlace& place) {
  const auto found = std::ranges::find_if(observed.told, [&](const SegmentRank& rank) {
    return rank.replica == place.replica && rank.stage == place.stage;
  });
  return found == observed.told.end() ? nullptr : &*found;
}

Slowness passes_of(const Observed& observed, const SegmentRank& rank) {
  const double count = observed.plan.micro_batches[static_cast<std::size_t>(rank.replica)];
  return {count * rank.forward_seconds, count * rank.backward_seconds};
}

std::string rank_text(const schedule::Plan& plan, const schedule::RankPlace& rank) {
  std::string text =
      "rank " + std::to_string(&rank - plan.ranks.data()) + " (stage " + std::to_string(rank.stage);
  if (plan.replica_count() > 1) text += " of replica " + std::to_string(rank.replica);
  return text + ") on " + rank.node;
}

std::vector<Deviation> deviations_of(const Observed& observed, const DeviceHistory& history) {
  std::vector<Deviation> all = slow_links_of(observed);
  for (const auto& more :
       {slow_devices(observed, history), pauses_and_data(observed), slow_saves(observed)}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  tell_lack_of_cpu(observed, all);
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
