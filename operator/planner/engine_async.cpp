// SPDX-License-Identifier: Apache-2.0
// The steady bottleneck as a source of layouts: on equal devices over one level of bandwidth by
// async/engine.h, else by async/unequal_devices.h.
#include <algorithm>

#include "operator/planner/async/engine.h"
#include "operator/planner/async/unequal_devices.h"
#include "operator/planner/cache.h"
#include "operator/planner/engines.h"

namespace weir::planner {
namespace {

constexpr int kMostDeviceStates = 2000;  // combinations of used devices

struct Rates {
  double least = 0, most = 0;  // bytes per second, of messages of 1 MB
  void add(double rate) {
    least = most == 0 ? rate : std::min(least, rate);
    most = std::max(most, rate);
  }
  bool one() const { return least == most; }
};

// Rates of all pairs of devices, on one server and on two.
struct Levels {
  Rates inside, between;
  int servers = 0, devices_each = 0;  // 0: servers have unequal numbers
};

Levels levels_of(const Setting& setting) {
  constexpr std::int64_t kMessage = 1'000'000;
  const placement::Topology& topology = *setting.topology;
  Levels levels;
  levels.servers = topology.servers();
  levels.devices_each = static_cast<int>(topology.devices_on(0).size());
  for (int a = 0; a < levels.servers; ++a) {
    const std::vector<int>& here = topology.devices_on(a);
    if (static_cast<int>(here.size()) != levels.devices_each) levels.devices_each = 0;
    if (here.size() > 1) {
      levels.inside.add(effective_rate(topology.link(here[0], here[1]), kMessage));
    }
    for (int b = 0; b < levels.servers; ++b) {
      if (a == b) continue;
      const int there = topology.devices_on(b).front();
      levels.between.add(effective_rate(topology.link(here.front(), there), kMessage));
    }
  }
  return levels;
}

// The states, and whether what a plan in them costs is what it costs on its devices; with the best
// rates anywhere (a bound), or with the worst.
std::optional<DeviceStates> device_states(const Setting& setting, const Levels& levels,
                                          bool best_rates) {
  const bool two_levels = setting.kinds.size() == 1 && setting.micro_batches.size() == 1 &&
                          levels.devices_each > 1 && levels.servers > 1;
  const auto rate = [&](const Rates& rates) { return best_rates ? rates.most : rates.least; };
  if (two_levels) {
    return states_of_servers(levels.servers, levels.devices_each, rate(levels.inside),
                             rate(levels.between));
  }
  Rates all;
  for (const Rates* rates : {&levels.inside, &levels.between}) {
    if (rates->most == 0) continue;
    all.add(rates->least);
    all.add(rates->most);
  }
  std::vector<int> counts, columns;
  for (const SyncClass& kind : setting.classes) {
    counts.push_back(kind.count);
    columns.push_back(kind.columns.front());
  }
  return states_of_counts(counts, columns, all.most > 0 ? rate(all) : 1e12, kMostDeviceStates);
}

struct ChainStage {
  std::vector<int> nodes;
  int kind = 0, ranks = 1;
};

Layout layout_of(const Setting& setting, const std::vector<ChainStage>& stages) {
  Layout layout;
  layout.first = {0};
  std::vector<int> nodes;
  for (const ChainStage& stage : stages) {
    nodes.insert(nodes.end(), stage.nodes.begin(), stage.nodes.end());
    layout.first.push_back(static_cast<int>(nodes.size()));
    layout.kinds.push_back(stage.kind);
    layout.ranks.push_back(stage.ranks);
  }
  layout.line = line_of(setting.dag, std::move(nodes));
  const int least = *std::ranges::min_element(setting.micro_batches);
  layout.k = ks_of(*setting.request, least).front();
  layout.caps = schedule::kfkb_caps(static_cast<int>(layout.stages()), least, layout.k);
  return layout;
}

// Several classes of devices, or two levels of bandwidth.
Result<EngineAnswer> unequal_layouts(const Setting& setting, const Levels& levels,
                                     const Limits& limits) {
  const bool transfers = setting.request->compat != Compat::kPipedreamNoTransfer;
  const auto states = device_states(setting, levels, false);
  const auto best_states = device_states(setting, levels, true);
  if (!states || !best_states) {
    return invalid("objective async: more than " + std::to_string(kMostDeviceStates) +
                   " combinations of device counts");
  }
  const auto ideals = ideals_for(setting, limits, nullptr);
  const UnequalPlan plan = plan_unequal(setting.dag, *ideals, *states, transfers, limits.stop);
  // With one rate a level what was searched is what a plan costs; else the best rates give a bound.
  const bool exact_rates = levels.inside.one() && levels.between.one() &&
                           (setting.kinds.size() == 1 || levels.inside.most == 0 ||
                            levels.inside.most == levels.between.most);
  const UnequalPlan bound =
      exact_rates ? plan : plan_unequal(setting.dag, *ideals, *best_states, transfers, limits.stop);
  std::vector<ChainStage> stages;
  std::size_t from = 0;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    stages.push_back({ideals->difference(from, plan.ends[s]), plan.stages[s].device_class,
                      plan.stages[s].ranks});
    from = plan.ends[s];
  }
  EngineAnswer answer;
  answer.layouts = {layout_of(setting, stages)};
  answer.value = plan.value;
  answer.lower_bound = std::min(plan.value, bound.lower_bound);
  answer.complete = true;
  answer.optimal = plan.proved && exact_rates;
  answer.formula = transfers ? "pipedream" : "pipedream-no-transfer";
  if (setting.kinds.size() == 1) {
    answer.formula += ", two levels of bandwidth, stages in the order of servers";
  } else {
    answer.formula += ", several classes, the slowest link for all";
  }
  answer.search.ideals = static_cast<std::int64_t>(ideals->count()) - 1;
  answer.search.boundaries = answer.search.ideals;
  answer.search.pairs = plan.pairs;
  answer.search.complete = plan.proved;
  return answer;
}

}  // namespace

Result<EngineAnswer> bottleneck_layouts(const Setting& setting, const Limits& limits) {
  const Request& request = *setting.request;
  const Levels levels = levels_of(setting);
  const bool two_levels = levels.devices_each > 1 && levels.servers > 1 &&
                          setting.micro_batches.size() == 1 &&
                          levels.inside.most != levels.between.most;
  if (setting.kinds.size() != 1 || two_levels) return unequal_layouts(setting, levels, limits);
  BottleneckProblem problem;
  problem.devices = setting.classes.front().count;
  problem.bytes_per_second = effective_rate(best_links(setting).links[0][0], 1'000'000);
  problem.transfers = request.compat != Compat::kPipedreamNoTransfer;
  problem.tolerance = request.tolerance;
  problem.limits.most = static_cast<std::size_t>(limits.ideals);
  problem.limits.most_bytes = static_cast<std::size_t>(limits.memory_bytes);
  problem.stop = limits.stop;
  // Times of a divided micro-batch may be known, but this formula divides those of a whole one.
  Dag dag = setting.dag;
  dag.classes = {setting.dag.classes[static_cast<std::size_t>(setting.classes[0].columns.front())]};
  const BottleneckPlan plan = plan_bottleneck(dag, problem);
  std::vector<ChainStage> stages;
  for (const BottleneckStage& stage : plan.stages) stages.push_back({stage.nodes, 0, stage.ranks});
  EngineAnswer answer;
  answer.layouts = {layout_of(setting, stages)};
  answer.value = plan.value;
  answer.lower_bound = plan.lower_bound;
  answer.complete = plan.certainty != Certainty::kHeuristic;
  answer.optimal = plan.certainty == Certainty::kOptimal;
  answer.formula = problem.transfers ? "pipedream" : "pipedream-no-transfer";
  answer.search.ideals = static_cast<std::int64_t>(plan.ideals);
  answer.search.boundaries = static_cast<std::int64_t>(plan.boundaries);
  answer.search.pairs = plan.pairs;
  answer.search.complete = answer.complete;
  return answer;
}

}  // namespace weir::planner
