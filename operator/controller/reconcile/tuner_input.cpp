// SPDX-License-Identifier: Apache-2.0
// Makes the tuner's input: measured stage times and link rates, memory, other micro-batch sizes.
#include "operator/controller/reconcile/tuner_input.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "operator/controller/reconcile/exposed_sync.h"
#include "operator/facts/node_bandwidth.h"

namespace weir::reconcile {
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

// A link whose messages all arrive in one piece is too fast to be timed, so it has no series
// (worker/transport/README.md "Busy time"). Like a link before its first message, it gets the rate
// of the probe or the default (operator/controller/reconcile/README.md "Pods").
void fill_untimed_links(const Pass& pass, const planner::Cluster& cluster,
                        estimator::RateVectors& rates) {
  std::map<std::pair<int, int>, std::string> nodes;  // by replica and stage
  for (const auto& rank : pass.plan->ranks) nodes[{rank.replica, rank.stage}] = rank.node;
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
std::vector<tuner::Size> other_sizes(const Pass& pass, const planner::Model& model,
                                     const planner::Cluster& cluster,
                                     const planner::PipelineCosts& costs,
                                     const tuner::Input& input) {
  constexpr double kOverhead = 0.5;  // samples
  std::vector<tuner::Size> sizes;
  const int now = input.current.micro_batch_size;
  if (pass.spec().micro_batch_size) return sizes;
  const int samples = now * input.micro_batches;  // of the replica with the smallest share
  const auto divides = [&](int size) {
    return std::ranges::all_of(pass.plan->micro_batches,
                               [&](int share) { return share * now % size == 0; });
  };
  for (const int size : {now / 4, now / 2, 2 * now, 4 * now}) {
    if (size < 1 || size == now || !divides(size) || samples / size < pass.plan->stage_count())
      continue;
    schedule::Plan plan = *pass.plan;
    plan.schedule.micro_batch_size = size;
    const auto other = planner::costs_of(model, cluster, plan);
    const bool known = measured(model, size) && measured(model, now);
    tuner::Size result{.micro_batch_size = size,
                       .micro_batches = samples / size,
                       .boundary_bytes = other.boundary_bytes};
    const auto scaled = [&](auto time, auto profiled, auto profiled_now) {
      const double by_profile = static_cast<double>(profiled.count()) /
                                std::max(1.0, static_cast<double>(profiled_now.count()));
      const double factor = known ? by_profile : (size + kOverhead) / (now + kOverhead);
      return std::chrono::nanoseconds(std::llround(static_cast<double>(time.count()) * factor));
    };
    for (std::size_t s = 0; s < input.stages.size(); ++s) {
      result.stages.push_back(
          {scaled(input.stages[s].forward, other.stages[s].forward, costs.stages[s].forward),
           scaled(input.stages[s].backward, other.stages[s].backward, costs.stages[s].backward)});
    }
    result.cap_max = caps_by_memory(other, result.micro_batches, cluster.memory_reserve);
    sizes.push_back(std::move(result));
  }
  return sizes;
}

// The part of the measured exposed sync that is caused by links below their usual rates.
double sync_lost_seconds(const Pass& pass, const planner::Model& model,
                         const planner::Cluster& cluster, const tuner::Input& input) {
  const SumLinks now = sum_links(pass, cluster);
  SumLinks usual = now;
  for (const auto* links : {&pass.estimates.sync_links, &pass.estimates.links}) {
    for (const auto& link : *links) {
      usual.cluster.links.push_back(
          {link.from_node, link.to_node, usual_rate(pass, link), cluster.default_latency});
    }
  }
  const double lost = modelled_exposed_sync(*pass.plan, model, now, input.stages) -
                      modelled_exposed_sync(*pass.plan, model, usual, input.stages);
  return std::clamp(lost, 0.0, input.sync_seconds);
}

}  // namespace

double usual_rate(const Pass& pass, const estimator::LinkEstimate& link) {
  if (link.baseline > 0) return link.baseline;
  if (link.link.direction == estimator::Direction::kSync) {
    return std::max(link.now, pass.fastest_link);
  }
  planner::Cluster at_start;
  if (pass.snapshot.members) facts::add_probed_links(pass.snapshot.members->body.links, at_start);
  return planner::link_between(at_start, link.from_node, link.to_node).bytes_per_second;
}

tuner::Settings settings_of(const api::JobSpec& spec) {
  tuner::Settings settings;
  settings.min_gain = spec.adaptation.retune.min_gain_percent / 100.0;
  settings.cooldown = std::chrono::seconds(spec.adaptation.retune.cooldown_seconds);
  settings.k_min = spec.schedule.k_min;
  settings.k_max = spec.schedule.k_max.value_or(8);
  settings.k_fixed = spec.schedule.k_mode == "Fixed";
  settings.fixed_caps = spec.schedule.in_flight_caps;
  settings.family = family_of(spec.schedule.type);
  settings.dispatch =
      spec.schedule.dispatch == "Strict" ? schedule::Dispatch::kStrict : schedule::Dispatch::kHint;
  return settings;
}

std::vector<double> free_memory(const Pass& pass) {
  std::vector<double> free(static_cast<std::size_t>(pass.plan->stage_count()), -1);
  for (const auto& rank : pass.plan->ranks) {
    for (const auto& member : pass.snapshot.report->body.members) {
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

tuner::Input input_of(const Pass& pass, const planner::Model& model) {
  const auto cluster = cluster_of(pass);
  const auto costs = planner::costs_of(model, cluster, *pass.plan);
  tuner::Input input;
  input.current = pass.plan->schedule;
  input.revision = pass.plan->revision;
  input.micro_batches = least_share(*pass.plan);
  input.boundary_bytes = costs.boundary_bytes;
  for (int r = 0; r < pass.plan->replica_count(); ++r) {
    const auto one = of_replica(*pass.plan, r);
    const auto own = planner::costs_of(model, cluster, one);
    input.replicas.push_back(
        {pass.plan->micro_batches[static_cast<std::size_t>(r)], stage_times(pass, one, own)});
    const auto caps = caps_by_memory(own, input.micro_batches, cluster.memory_reserve);
    if (r == 0) input.cap_max = caps;
    for (std::size_t s = 0; s < caps.size(); ++s)
      input.cap_max[s] = std::min(input.cap_max[s], caps[s]);
  }
  input.stages = tuner::slowest_stages(input.replicas);
  input.sync_seconds = measured_exposed_sync(pass);
  input.sync_lost_seconds = sync_lost_seconds(pass, model, cluster, input);
  input.apart = schedule::averages(*pass.plan);
  for (const auto& limit : pass.status.memory_limits) {
    const auto stage = static_cast<std::size_t>(limit.stage);
    if (limit.stage < 0 || stage >= input.cap_max.size() || limit.in_flight_cap <= 0) continue;
    for (auto s = stage; s < input.cap_max.size(); ++s)
      input.cap_max[s] = std::min(input.cap_max[s], limit.in_flight_cap);
  }
  input.rates = pass.estimates.rates;
  fill_untimed_links(pass, cluster, input.rates);
  input.other_sizes = other_sizes(pass, model, cluster, costs, input);
  for (const auto& link : pass.estimates.links) input.baseline[link.link] = usual_rate(pass, link);
  for (const auto& [link, rates] : input.rates.rates) {  // links that are too fast to be timed
    if (!rates.empty()) input.baseline.try_emplace(link, rates.back());
  }
  input.step = pass.snapshot.report->body.step;
  // Without the replicas' own times it is unknown how much of a step is waiting for each other.
  const bool one_step = pass.plan->replica_count() == 1 || replicas_known(pass);
  input.measured_step_seconds = one_step ? recent_step_seconds(pass) : 0;
  input.now = pass.now();
  input.settings = settings_of(pass.spec());
  input.free_memory = free_memory(pass);
  return input;
}

}  // namespace weir::reconcile
