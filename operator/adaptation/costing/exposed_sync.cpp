// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/costing/exposed_sync.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "worker/base/packed_below.h"
#include "worker/base/units.h"

namespace weir::costing {
namespace {

// Bytes sent per byte of a parameter.
constexpr double kContributions = 2, kResults = 1;
constexpr std::size_t kMostRanks = 64;  // as in node_bandwidth.cpp, which infers no pairs beyond
constexpr std::size_t kNeighbours = 4;  // links that a rank reports (worker/engine/statistics.h)

bool is_modelled(const schedule::Plan& plan) {
  return plan.replica_count() > 1 && !schedule::averages(plan) && plan.ranks.size() <= kMostRanks;
}

using Part = std::chrono::nanoseconds planner::LayerTime::*;

// own, whole_sum: seconds that all layers of the stage take, for their gradients and for their sum.
double left_of_sum(const schedule::Plan& plan, const planner::Model& model, std::size_t stage,
                   double whole_sum, Part part, double own) {
  const auto [first, last] = plan.stages[stage];
  const std::span layers =
      std::span(model.layers)
          .subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first + 1));
  const auto time_of = [&](const planner::Layer& layer) {
    return to_seconds(planner::layer_time(model, layer, "", plan.schedule.micro_batch_size).*part);
  };
  double bytes = 0, seconds = 0;
  for (const planner::Layer& layer : layers) {
    bytes += static_cast<double>(layer.parameter_bytes);
    seconds += time_of(layer);
  }
  double left = 0, up_to = 0, before = 0;
  for (const planner::Layer& layer : layers) {
    up_to += static_cast<double>(layer.parameter_bytes);
    const double hidden = seconds > 0 ? own * before / seconds : 0;
    if (bytes > 0) left = std::max(left, whole_sum * up_to / bytes - hidden);
    before += time_of(layer);
  }
  return left;
}

double parameter_bytes(const schedule::LayerRange& range, const planner::Model& model) {
  std::int64_t bytes = 0;
  for (int layer = range.first; layer <= range.last; ++layer) {
    bytes += model.layers[static_cast<std::size_t>(layer)].parameter_bytes;
  }
  return static_cast<double>(bytes);
}

// The slowest link of a stage's sum. All replicas exchange with each other at the same time, so one
// slow link delays the whole sum. nodes: those of the replicas, in order.
double slowest_rate(const std::vector<std::string>& nodes, const SumLinks& links) {
  double slowest = links.most;
  for (std::size_t to = 0; to < nodes.size(); ++to) {
    for (std::size_t i = 1; i <= kNeighbours && i < nodes.size(); ++i) {
      const std::string& from = nodes[(to + i) % nodes.size()];
      const double rate = planner::link_between(links.cluster, from, nodes[to]).bytes_per_second;
      if (rate > 0 && (slowest <= 0 || rate < slowest)) slowest = rate;
    }
  }
  return slowest;
}

}  // namespace

SumLinks sum_links(const facts::Facts& facts, planner::Cluster cluster) {
  SumLinks sums{.cluster = std::move(cluster), .packed_part = facts.estimates.packed_part};
  if (!is_modelled(*facts.plan)) return sums;
  for (const auto* links : {&facts.estimates.sync_links, &facts.estimates.links}) {
    for (const auto& link : *links) {
      if (link.mean <= 0) continue;
      sums.cluster.links.push_back(
          {link.from_node, link.to_node, link.mean, sums.cluster.default_latency});
    }
  }
  for (const auto& link : facts.estimates.sync_links) {
    sums.most = std::max({sums.most, link.mean, usual_rate(facts, link)});
  }
  return sums;
}

SumsLeft modelled_sums(const schedule::Plan& plan, const planner::Model& model,
                       const SumLinks& links, const std::vector<schedule::StageTime>& stages) {
  if (!is_modelled(plan)) return {};
  const auto count = static_cast<std::size_t>(plan.replica_count());
  std::map<int, std::vector<std::string>> nodes;  // by stage
  for (const auto& rank : plan.ranks) {
    auto& own = nodes[rank.stage];
    own.resize(count);
    own[static_cast<std::size_t>(rank.replica)] = rank.node;
  }
  const auto replicas = static_cast<double>(count);
  SumsLeft sums;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const double rate = slowest_rate(nodes[static_cast<int>(s)], links);
    const double part = rate < kPackedBelow ? links.packed_part : 1;
    const double bytes = (part * kContributions + kResults) * (replicas - 1) / replicas *
                         parameter_bytes(plan.stages[s], model);
    const double whole = rate > 0 ? bytes / rate : 0;
    const schedule::StageTime times = s < stages.size() ? stages[s] : schedule::StageTime{};
    const auto left = [&](Part time, std::chrono::nanoseconds own) {
      return from_seconds(left_of_sum(plan, model, s, whole, time, to_seconds(own)));
    };
    sums.after_backward.push_back(left(&planner::LayerTime::backward, times.backward));
    sums.after_weights.push_back(
        left(&planner::LayerTime::backward_weights, times.backward_weights));
  }
  return sums;
}

double modelled_exposed_sync(const schedule::Plan& plan, const planner::Model& model,
                             const SumLinks& links,
                             const std::vector<schedule::StageTime>& stages) {
  double longest = 0, before = 0;
  const SumsLeft sums = modelled_sums(plan, model, links, stages);
  for (std::size_t s = 0; s < sums.after_backward.size(); ++s) {
    longest = std::max(longest, to_seconds(sums.after_backward[s]) - before);
    if (s < stages.size()) before += to_seconds(stages[s].backward);
  }
  return longest;
}

double changed_exposed_sync(double measured, double modelled, double modelled_then) {
  if (measured >= modelled) return measured - modelled + modelled_then;
  if (modelled_then <= modelled) return measured * modelled_then / modelled;
  return measured + modelled_then - modelled;
}

}  // namespace weir::costing
