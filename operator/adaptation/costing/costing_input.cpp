// SPDX-License-Identifier: Apache-2.0
// Makes the input of a costing: measured stage times and link rates, memory, other micro-batch
// sizes.
#include "operator/adaptation/costing/costing_input.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "operator/adaptation/costing/exposed_sync.h"
#include "operator/facts/measured_times.h"
#include "operator/facts/planning.h"
#include "operator/planner/model/stage_costs.h"
#include "worker/base/units.h"

namespace weir::costing {
namespace {

std::vector<int> caps_by_memory(const planner::PipelineCosts& costs, int micro_batches,
                                double reserve) {
  std::vector<int> caps;
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    const auto limit = static_cast<double>(costs.memory_limit[s]) * (1 - reserve);
    int cap = micro_batches;
    if (costs.memory_limit[s] > 0 && costs.stash_bytes[s] > 0) {
      const double room = limit - static_cast<double>(costs.static_bytes[s]);
      cap =
          static_cast<int>(std::clamp(std::floor(room / static_cast<double>(costs.stash_bytes[s])),
                                      1.0, double(micro_batches)));
    }
    caps.push_back(caps.empty() ? cap : std::min(cap, caps.back()));
  }
  // Caps must not increase from stage to stage, so a stage limits the ones behind it, but not those
  // before it.
  return caps;
}

std::vector<Room> rooms_of(const planner::PipelineCosts& costs, double reserve) {
  std::vector<Room> rooms;
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    const auto limit = static_cast<double>(costs.memory_limit[s]) * (1 - reserve);
    rooms.push_back({.memory = costs.split[s], .limit_bytes = static_cast<std::int64_t>(limit)});
  }
  return rooms;
}

// After lack of memory, its stage holds fewer micro-batches.
void limit_rooms(const facts::Facts& facts, std::vector<Room>& rooms) {
  for (const auto& limit : facts.status.memory_limits) {
    const auto stage = static_cast<std::size_t>(limit.stage);
    if (limit.stage < 0 || stage >= rooms.size() || limit.in_flight_cap <= 0) continue;
    rooms[stage].most = std::min(rooms[stage].most, limit.in_flight_cap);
  }
}

// The replica with less memory counts.
void take_smaller(const std::vector<Room>& other, std::vector<Room>& rooms) {
  for (std::size_t s = 0; s < rooms.size(); ++s) {
    const std::int64_t bytes = other[s].limit_bytes;
    if (bytes > 0 && (rooms[s].limit_bytes <= 0 || bytes < rooms[s].limit_bytes)) {
      rooms[s].limit_bytes = bytes;
    }
  }
}

// A link whose messages all arrive in one piece is too fast to be timed, so it has no series
// (worker/transport/README.md "Busy time"). Like a link before its first message, it gets the rate
// of the probe or the default (operator/controller/reconcile/README.md "Pods").
void fill_untimed_links(const facts::Facts& facts, const planner::Cluster& cluster,
                        estimator::RateVectors& rates) {
  std::map<std::pair<int, int>, std::string> nodes;  // by replica and stage
  for (const auto& rank : facts.plan->ranks) nodes[{rank.replica, rank.stage}] = rank.node;
  for (const auto& [place, node] : nodes) {
    const auto& [replica, stage] = place;
    const auto next = nodes.find({replica, stage + 1});
    if (next == nodes.end()) continue;
    for (const auto direction : {estimator::Direction::kForward, estimator::Direction::kBackward}) {
      auto& known = rates.rates[{replica, stage, direction}];
      if (std::any_of(known.begin(), known.end(), [](double rate) { return rate > 0; })) continue;
      const bool forward = direction == estimator::Direction::kForward;
      const auto link = planner::link_between(cluster, forward ? node : next->second,
                                              forward ? next->second : node);
      known.assign(rates.times.size(), link.bytes_per_second);
    }
  }
}

bool measured(const planner::Model& model, int micro_batch_size) {
  return std::ranges::all_of(model.layers, [&](const auto& layer) {
    return std::ranges::any_of(layer.times, [&](const auto& entry) {
      return std::ranges::any_of(entry.second, [&](const planner::LayerTime& time) {
        return time.samples == micro_batch_size;
      });
    });
  });
}

// Micro-batch sizes near the current one, if the spec leaves the size open. Their times are the
// measured ones of the current size, in the ratio of the profile if that has both sizes, else of
// (mb+b0)/(mb0+b0), because each micro-batch costs half a sample on top of its samples.
std::vector<Size> other_sizes(const facts::Facts& facts, const planner::Model& model,
                              const planner::Cluster& cluster, const planner::PipelineCosts& costs,
                              const Input& input) {
  constexpr double kOverhead = 0.5;  // samples
  std::vector<Size> sizes;
  const int now = input.current.micro_batch_size;
  if (facts.spec.micro_batch_size) return sizes;
  const int samples = now * input.micro_batches;  // of the replica with the smallest share
  const auto divides = [&](int size) {
    return std::ranges::all_of(facts.plan->micro_batches,
                               [&](int share) { return share * now % size == 0; });
  };
  for (const int size : {now / 4, now / 2, 2 * now, 4 * now}) {
    if (size < 1 || size == now || !divides(size) || samples / size < facts.plan->stage_count())
      continue;
    schedule::Plan plan = *facts.plan;
    plan.schedule.micro_batch_size = size;
    const auto other = planner::costs_of(model, cluster, plan);
    const bool known = measured(model, size) && measured(model, now);
    Size result{.micro_batch_size = size,
                .micro_batches = samples / size,
                .boundary_bytes = other.boundary_bytes};
    const auto scaled = [&](auto time, auto profiled, auto profiled_now) {
      const double by_profile = static_cast<double>(profiled.count()) /
                                std::max(1.0, static_cast<double>(profiled_now.count()));
      const double factor = known ? by_profile : (size + kOverhead) / (now + kOverhead);
      return std::chrono::nanoseconds(std::llround(static_cast<double>(time.count()) * factor));
    };
    for (std::size_t s = 0; s < input.stages.size(); ++s) {
      schedule::StageTime stage;
      for (const auto time : kStageTimes) {
        stage.*time = scaled(input.stages[s].*time, other.stages[s].*time, costs.stages[s].*time);
      }
      result.stages.push_back(stage);
    }
    result.cap_max = caps_by_memory(other, result.micro_batches, cluster.memory_reserve);
    result.rooms = rooms_of(other, cluster.memory_reserve);
    for (std::size_t s = 0; s < result.rooms.size() && s < input.rooms.size(); ++s) {
      result.rooms[s].limit_bytes = input.rooms[s].limit_bytes;
    }
    sizes.push_back(std::move(result));
  }
  return sizes;
}

// The part of the measured exposed sync that is caused by links below their usual rates.
double sync_lost_seconds(const facts::Facts& facts, const planner::Model& model,
                         const planner::Cluster& cluster, const Input& input) {
  const SumLinks now = sum_links(facts, cluster);
  SumLinks usual = now;
  for (const auto* links : {&facts.estimates.sync_links, &facts.estimates.links}) {
    for (const auto& link : *links) {
      usual.cluster.links.push_back(
          {link.from_node, link.to_node, usual_rate(facts, link), cluster.default_latency});
    }
  }
  const double lost = modelled_exposed_sync(*facts.plan, model, now, input.stages) -
                      modelled_exposed_sync(*facts.plan, model, usual, input.stages);
  return std::clamp(lost, 0.0, input.sync_seconds);
}

// Their rates of before would hide for a minute that they have recovered, and for good if no other
// link has a rate either. They have their usual rate, that of the probe, or the least that brings a
// message in one piece, whatever is most: a job may have begun on a slow network.
void renew_quick_links(const facts::Facts& facts, const planner::Model& model, Input& input) {
  constexpr double kOnePiece = 1e-3;  // s, a late wake-up of a receiver
  planner::Cluster at_start;
  if (facts.members != nullptr) facts::add_probed_links(facts.members->links, at_start);
  estimator::RateVectors& rates = input.rates;
  const std::set<estimator::LinkKey> quick = facts::quick_links(facts, model);
  for (const estimator::LinkKey& link : quick) {
    std::string from, to;
    for (const auto& rank : facts.plan->ranks) {
      if (rank.replica != link.replica) continue;
      if (rank.stage == link.boundary) from = rank.node;
      if (rank.stage == link.boundary + 1) to = rank.node;
    }
    if (link.direction == estimator::Direction::kBackward) std::swap(from, to);
    const auto raw =
        static_cast<double>(input.boundary_bytes[static_cast<std::size_t>(link.boundary)]);
    const double wire = raw / raw_over_wire(*facts.plan, model, input.boundary_bytes, link);
    double rate =
        std::max(wire / kOnePiece, planner::link_between(at_start, from, to).bytes_per_second);
    for (const auto& known : facts.estimates.links) {
      if (known.link == link) rate = std::max(rate, usual_rate(facts, known));
    }
    rates.rates[link].assign(rates.times.size(), rate);
  }
  // Where no link has been timed for a window, the report is the news, of the rates of now.
  const std::chrono::seconds window(facts.spec.adaptation.window_seconds);
  if (!facts::all_quick(facts, quick) || rates.times.empty()) return;
  if (facts.reported - rates.times.back() > window) std::ranges::fill(rates.times, facts.reported);
}

}  // namespace

double raw_over_wire(const schedule::Plan& plan, const planner::Model& model,
                     const std::vector<std::int64_t>& boundary_bytes,
                     const estimator::LinkKey& link) {
  const auto boundary = static_cast<std::size_t>(link.boundary);
  if (link.boundary < 0 || boundary >= boundary_bytes.size()) return 1;
  const std::int64_t raw = boundary_bytes[boundary];
  const bool forward = link.direction == estimator::Direction::kForward;
  const std::int64_t wire = planner::wire_bytes(model, plan, link.boundary, forward, raw);
  return raw > 0 && wire > 0 ? static_cast<double>(raw) / static_cast<double>(wire) : 1;
}

void by_raw_bytes(const schedule::Plan& plan, const planner::Model& model,
                  const std::vector<std::int64_t>& boundary_bytes, estimator::RateVectors& rates) {
  if (plan.codecs.raw()) return;
  for (auto& [link, values] : rates.rates) {
    const double more = raw_over_wire(plan, model, boundary_bytes, link);
    for (double& rate : values) rate *= more;
  }
}

Input costing_input(const facts::Facts& facts, const planner::Model& model) {
  const auto cluster = cluster_of(facts);
  const auto costs = planner::costs_of(model, cluster, *facts.plan);
  Input input;
  input.current = facts.plan->schedule;
  input.micro_batches = facts::least_share(*facts.plan);
  input.boundary_bytes = costs.boundary_bytes;
  input.codec_seconds = codec_seconds(facts, model);
  const auto coded = codec_numbers(facts.plan->codecs, costs.boundary_bytes, model.number_bytes);
  for (int r = 0; r < facts.plan->replica_count(); ++r) {
    const auto one = facts::of_replica(*facts.plan, r);
    const auto own = planner::costs_of(model, cluster, one);
    input.replicas.push_back(
        {facts.plan->micro_batches[static_cast<std::size_t>(r)], stage_times(facts, one, own)});
    add_codec_seconds(coded, input.codec_seconds.per_number, input.replicas.back().stages);
    const auto caps = caps_by_memory(own, input.micro_batches, cluster.memory_reserve);
    if (r == 0) input.cap_max = caps;
    const auto rooms = rooms_of(own, cluster.memory_reserve);
    if (r == 0) input.rooms = rooms;
    take_smaller(rooms, input.rooms);
    for (std::size_t s = 0; s < caps.size(); ++s)
      input.cap_max[s] = std::min(input.cap_max[s], caps[s]);
  }
  input.stages = slowest_stages(input.replicas);
  input.sync_seconds = measured_exposed_sync(facts);
  input.sync_lost_seconds = sync_lost_seconds(facts, model, cluster, input);
  input.apart = schedule::averages(*facts.plan);
  for (const auto& limit : facts.status.memory_limits) {
    const auto stage = static_cast<std::size_t>(limit.stage);
    if (limit.stage < 0 || stage >= input.cap_max.size() || limit.in_flight_cap <= 0) continue;
    for (auto s = stage; s < input.cap_max.size(); ++s)
      input.cap_max[s] = std::min(input.cap_max[s], limit.in_flight_cap);
  }
  limit_rooms(facts, input.rooms);
  input.sums = modelled_sums(*facts.plan, model, sum_links(facts, cluster), input.stages);
  input.rates = facts.estimates.rates;
  fill_untimed_links(facts, cluster, input.rates);
  renew_quick_links(facts, model, input);
  input.other_sizes = other_sizes(facts, model, cluster, costs, input);
  for (const auto& link : facts.estimates.links)
    input.baseline[link.link] = usual_rate(facts, link);
  for (auto& [link, rate] : input.baseline) {
    rate *= raw_over_wire(*facts.plan, model, input.boundary_bytes, link);
  }
  by_raw_bytes(*facts.plan, model, input.boundary_bytes, input.rates);
  for (const auto& [link, rates] : input.rates.rates) {  // links that are too fast to be timed
    if (!rates.empty()) input.baseline.try_emplace(link, rates.back());
  }
  input.used_scrapes = facts::kUsedScrapes;
  input.step = facts.report->step;
  // Without the replicas' own times it is unknown how much of a step is waiting for each other.
  const bool one_step = facts.plan->replica_count() == 1 || replicas_known(facts);
  input.measured_step_seconds = one_step ? recent_step_seconds(facts) : 0;
  return input;
}

}  // namespace weir::costing
