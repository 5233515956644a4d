// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/tool/simulate_plan.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "operator/planner/describe.h"
#include "operator/planner/setting.h"
#include "operator/planner/sync/simulated_time.h"
#include "worker/base/units.h"
#include "worker/schedule/bounds.h"
#include "worker/schedule/search_split.h"

namespace weir::planner {
namespace {

Error unusable(const std::string& text) {
  return {Code::kInvalid, text};
}

int device_of(const Cluster& cluster, const schedule::RankPlace& rank) {
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    const Device& device = cluster.devices[d];
    if (device.pod == rank.pod && device.local == rank.local) return static_cast<int>(d);
  }
  return -1;
}

// Positions of the Dag's nodes in the plan's order.
Result<std::vector<int>> nodes_of(const Setting& setting, const std::vector<int>& order) {
  const auto layers = static_cast<std::size_t>(setting.dag.nodes);
  std::vector<int> node_of(layers, -1);
  for (int node = 0; node < setting.dag.nodes; ++node) {
    node_of[static_cast<std::size_t>(setting.dag.layer[static_cast<std::size_t>(node)])] = node;
  }
  std::vector<int> nodes;
  for (std::size_t i = 0; i < layers; ++i) {
    const int layer = order.empty() ? static_cast<int>(i) : order[i];
    nodes.push_back(node_of[static_cast<std::size_t>(layer)]);
  }
  return nodes;
}

Result<Layout> layout_of(const Setting& setting, const schedule::Plan& plan,
                         const std::vector<int>& order) {
  Layout layout;
  WEIR_TRY(std::vector<int> nodes, nodes_of(setting, order));
  layout.line = line_of(setting.dag, std::move(nodes));
  layout.k = plan.schedule.k;
  layout.caps = plan.schedule.caps;
  layout.split = plan.schedule.split;
  layout.first = {0};
  for (const schedule::LayerRange& range : plan.stages) layout.first.push_back(range.last + 1);
  const std::size_t stages = plan.stages.size();
  layout.devices.assign(plan.micro_batches.size(), std::vector<std::vector<int>>(stages));
  for (const schedule::RankPlace& rank : plan.ranks) {
    const int device = device_of(*setting.cluster, rank);
    if (device < 0) {
      return unusable("ranks: no device " + rank.pod + "/" + std::to_string(rank.local) +
                      " in the cluster");
    }
    const auto r = static_cast<std::size_t>(rank.replica), s = static_cast<std::size_t>(rank.stage);
    if (r >= layout.devices.size() || s >= stages) return unusable("ranks: no such place");
    layout.devices[r][s].push_back(device);
  }
  for (std::size_t s = 0; s < stages; ++s) {
    for (const auto& replica : layout.devices) {
      if (replica[s].empty()) return unusable("ranks: no rank for stage " + std::to_string(s));
      if (replica[s].size() != layout.devices.front()[s].size()) {
        return unusable("ranks: replicas have different numbers of ranks on stage " +
                        std::to_string(s));
      }
    }
    const int device = layout.devices.front()[s].front();
    layout.kinds.push_back(setting.kind_of[static_cast<std::size_t>(device)]);
    layout.ranks.push_back(static_cast<int>(layout.devices.front()[s].size()));
  }
  return layout;
}

// Changes of the links from any of these devices to any of those, over the share that they have.
void add_trace(const Setting& setting, const std::vector<int>& from, const std::vector<int>& to,
               const std::vector<ShareChange>& changes, schedule::LinkModel& link) {
  double share = 1;
  for (const int a : from) {
    for (const int b : to) {
      share = std::min(share, setting.topology->link(a, b).available_share);
    }
  }
  const auto touches = [&](const ShareChange& change) {
    const auto on = [&](const std::vector<int>& devices, const std::string& node) {
      return std::ranges::any_of(devices, [&](int d) {
        return setting.cluster->devices[static_cast<std::size_t>(d)].node == node;
      });
    };
    return on(from, change.from_node) && on(to, change.to_node);
  };
  for (const ShareChange& change : changes) {
    if (!touches(change)) continue;
    if (link.trace.empty()) {
      link.transfer = from_seconds(to_seconds(link.transfer) * share);
      link.trace.emplace_back(std::chrono::nanoseconds(0), share);
    }
    link.trace.emplace_back(from_seconds(change.seconds), change.share);
  }
}

// The simulator counts nanoseconds in 64 bits: what is too long for it is refused by its name.
Status countable(const Pipeline& pipeline, int micro_batches,
                 const std::vector<ShareChange>& changes, double start_seconds) {
  double least_share = 1;
  for (const ShareChange& change : changes) least_share = std::min(least_share, change.share);
  double all = 0;  // one micro-batch alone through everything
  std::string wrong;
  const auto take = [&](double seconds, const char* what, std::size_t index) {
    all += seconds;
    if (seconds <= kLongestSimulated || !wrong.empty()) return;
    std::ostringstream text;
    text << what << " " << index << " takes " << seconds << " s, at most " << kLongestSimulated
         << " s can be simulated";
    wrong = text.str();
  };
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    take(pipeline.stages[s].forward, "the forward op of stage", s);
    take(pipeline.stages[s].backward, "the backward op of stage", s);
  }
  for (std::size_t b = 0; b < pipeline.send_forward.size(); ++b) {
    take(pipeline.send_forward[b] / least_share, "a transfer over boundary", b);
    take(pipeline.send_backward[b] / least_share, "a transfer back over boundary", b);
  }
  if (!wrong.empty()) return unusable(wrong);
  const double end = start_seconds + all * micro_batches;
  if (end <= kLongestSeconds) return Unit{};
  std::ostringstream text;
  text << "the steps may take " << end << " s, which is too long to be simulated";
  return unusable(text.str());
}

}  // namespace

Result<SimulatedPlan> simulate_plan(const Model& model, const Cluster& cluster,
                                    const schedule::Plan& plan, const std::vector<int>& order,
                                    const std::vector<ShareChange>& changes, double start_seconds) {
  Request request;
  request.global_batch =
      plan.schedule.micro_batch_size * static_cast<int>(plan.step_micro_batches());
  request.data_parallel = static_cast<int>(plan.micro_batches.size());
  request.most_ranks_per_stage = 0;
  request.family = plan.schedule.family;
  request.dispatch = plan.schedule.dispatch;
  const placement::Topology topology(cluster);
  WEIR_TRY(Setting setting,
           setting_of(model, cluster, request, topology, plan.schedule.micro_batch_size));
  setting.micro_batches = plan.micro_batches;
  WEIR_TRY(const Layout layout, layout_of(setting, plan, order));
  SimulatedPlan result;
  const std::vector<double> rings = rings_of(setting, layout);
  std::vector<double> ends(layout.stages(), 0);
  for (std::size_t r = 0; r < layout.devices.size(); ++r) {
    SimulatedReplica replica;
    replica.pipeline = pipeline_of(setting, layout, r, rings);
    schedule::PipelineModel simulated = simulated_model(replica.pipeline);
    WEIR_OK(countable(replica.pipeline, plan.micro_batches[r], changes, start_seconds));
    simulated.record = true;
    simulated.start = from_seconds(start_seconds);
    for (std::size_t b = 0; b + 1 < layout.stages() && !changes.empty(); ++b) {
      const auto& devices = layout.devices[r];
      add_trace(setting, devices[b], devices[b + 1], changes, simulated.forward[b]);
      add_trace(setting, devices[b + 1], devices[b], changes, simulated.backward[b]);
    }
    // As asked: the caller says whether workers would run these caps otherwise.
    auto timeline = schedule::simulate(plan.schedule, plan.micro_batches[r], simulated);
    if (!timeline) return unusable("schedule: some micro-batch can never run");
    for (std::size_t s = 0; s < ends.size(); ++s) {
      ends[s] = std::max(ends[s], to_seconds(schedule::end_of(*timeline, s)));
    }
    result.step_seconds = std::max(result.step_seconds, to_seconds(timeline->step));
    replica.timeline = *std::move(timeline);
    result.replicas.push_back(std::move(replica));
  }
  const Pipeline& first = result.replicas.front().pipeline;
  for (std::size_t s = 0; s < ends.size(); ++s) {
    result.step_seconds = std::max(result.step_seconds, ends[s] + first.stages[s].update);
    result.memory.push_back(memory_of(setting, layout, s));
  }
  const int k = std::max(1, schedule::k_of_caps(plan.schedule.caps));
  result.forms = step_forms(first, plan.micro_batches.front(), k);
  const schedule::PipelineModel free = simulated_model(first);
  if (schedule::has_weights(free.stages)) {
    result.split_bound_seconds = to_seconds(
        schedule::least_step(free, plan.micro_batches.front(), schedule::Backwards::kSplit));
  }
  result.period_seconds = period(first, k);
  result.period_cause = period_cause(first, k);
  return result;
}

}  // namespace weir::planner
