// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/layout.h"

#include <algorithm>
#include <numeric>

#include "operator/planner/sync/simulated_time.h"
#include "worker/base/check.h"
#include "worker/base/units.h"

namespace weir::planner {
namespace {

constexpr double kNever = 1e18;
constexpr double kNanosecond = 1e-9;

std::int64_t over(const std::vector<std::int64_t>& sums, int first, int end) {
  return sums[static_cast<std::size_t>(end)] - sums[static_cast<std::size_t>(first)];
}

// Bytes held for the parameters between two positions.
std::int64_t state_of(const Setting& setting, const Line& line, int first, int end) {
  return state_bytes(setting.dag.state_factor, over(line.parameters, first, end),
                     over(line.frozen, first, end));
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::vector<std::int64_t> sums_of(const std::vector<int>& nodes,
                                  const std::vector<std::int64_t>& values) {
  std::vector<std::int64_t> sums{0};
  for (const int node : nodes) {
    sums.push_back(sums.back() + values[static_cast<std::size_t>(node)]);
  }
  return sums;
}

// Bytes across each prefix: every node once that has a consumer behind it.
std::vector<std::int64_t> cuts_of(const Dag& dag, const std::vector<int>& nodes) {
  std::vector<std::size_t> position(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) position[static_cast<std::size_t>(nodes[i])] = i;
  std::vector<std::int64_t> change(nodes.size() + 2, 0);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto node = static_cast<std::size_t>(nodes[i]);
    std::size_t last = i;
    for (const int next : dag.successors[node]) {
      last = std::max(last, position[static_cast<std::size_t>(next)]);
    }
    change[i + 1] += dag.output[node];  // prefixes i+1 .. last hold it and not its last consumer
    change[last + 1] -= dag.output[node];
  }
  std::vector<std::int64_t> cut(nodes.size() + 1, 0);
  std::int64_t now = 0;
  for (std::size_t i = 0; i < cut.size(); ++i) {
    now += change[i];
    cut[i] = now;
  }
  return cut;
}

struct Column {
  std::size_t index = 0;
  double divisor = 1;
};
Column column_of(const Setting& setting, const Layout& layout, std::size_t stage) {
  const SyncClass& device = setting.classes[static_cast<std::size_t>(layout.kinds[stage])];
  const auto own = static_cast<std::size_t>(layout.ranks[stage] - 1);
  if (own < device.columns.size()) return {static_cast<std::size_t>(device.columns[own]), 1};
  return {static_cast<std::size_t>(device.columns.front()),
          static_cast<double>(layout.ranks[stage])};
}

bool same_costs(const Pipeline& a, const Pipeline& b) {
  return a.send_forward == b.send_forward && a.send_backward == b.send_backward &&
         std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(),
                    [](const StageCost& x, const StageCost& y) {
                      return x.forward == y.forward && x.backward == y.backward;
                    });
}

}  // namespace

int Layout::device_count() const {
  return std::accumulate(ranks.begin(), ranks.end(), 0);
}

std::shared_ptr<const Line> line_of(const Dag& dag, std::vector<int> nodes) {
  WEIR_CHECK(static_cast<int>(nodes.size()) == dag.nodes, "an order holds every node");
  Line line;
  for (const DagTimes& times : dag.classes) {
    line.forward.push_back(sums_of(nodes, times.forward));
    line.backward.push_back(sums_of(nodes, times.backward));
    line.update.push_back(sums_of(nodes, times.update));
    line.backward_input.push_back(sums_of(nodes, times.backward_input));
    line.backward_weights.push_back(sums_of(nodes, times.backward_weights));
  }
  line.parameters = sums_of(nodes, dag.parameters);
  line.frozen = sums_of(nodes, dag.frozen);
  line.stash = sums_of(nodes, dag.stash);
  line.held = sums_of(nodes, dag.held);
  line.in_backward = sums_of(nodes, dag.in_backward);
  line.cut = cuts_of(dag, nodes);
  line.nodes = std::move(nodes);
  return std::make_shared<const Line>(std::move(line));
}

schedule::Schedule schedule_of(const Setting& setting, const Layout& layout) {
  schedule::Schedule schedule;
  schedule.family = setting.request->family;
  schedule.k = layout.k;
  schedule.micro_batch_size = setting.micro_batch_size;
  schedule.caps = layout.caps;
  schedule.split = layout.split;
  schedule.dispatch = schedule::dispatch_in_force(schedule, setting.request->dispatch);
  return schedule;
}

std::vector<double> rings_of(const Setting& setting, const Layout& layout) {
  std::vector<double> rings;
  rings.reserve(layout.stages());
  for (std::size_t s = 0; s < layout.stages(); ++s) {
    rings.push_back(placement::ring_seconds(
        *setting.topology, layout.devices, s,
        over(layout.line->parameters, layout.first[s], layout.first[s + 1])));
  }
  return rings;
}

// Half of the sums, then half of what both add up to; both directions at once. A half of them in
// double has as many bytes as the table.
double tie_seconds(const Setting& setting, const Layout& layout) {
  const std::int64_t bytes = setting.model->tied_bytes;
  if (bytes == 0 || layout.stages() < 2) return 0;
  double slowest = 0;
  for (const auto& stages : layout.devices) {
    for (const auto& [from, to] :
         {std::pair(&stages.front(), &stages.back()), std::pair(&stages.back(), &stages.front())}) {
      const auto send = placement::send_between(*setting.topology, *from, *to, bytes);
      slowest = std::max(slowest, 2 * send.seconds);
    }
  }
  return slowest;
}

Pipeline pipeline_of(const Setting& setting, const Layout& layout, std::size_t replica) {
  return pipeline_of(setting, layout, replica, rings_of(setting, layout));
}

Pipeline pipeline_of(const Setting& setting, const Layout& layout, std::size_t replica,
                     const std::vector<double>& rings) {
  Pipeline pipeline;
  const Line& line = *layout.line;
  const auto& devices = layout.devices[replica];
  pipeline.stages.reserve(layout.stages());
  for (std::vector<double>* sends : {&pipeline.send_forward, &pipeline.send_backward,
                                     &pipeline.hold_forward, &pipeline.hold_backward}) {
    sends->reserve(layout.stages());
  }
  for (std::size_t s = 0; s < layout.stages(); ++s) {
    const int first = layout.first[s], end = layout.first[s + 1];
    const Column column = column_of(setting, layout, s);
    const double unit = kNanosecond / column.divisor;
    StageCost cost;
    const auto seconds = [&](const std::vector<std::vector<std::int64_t>>& sums) {
      return static_cast<double>(over(sums[column.index], first, end)) * unit;
    };
    cost.forward = seconds(line.forward);
    cost.backward = seconds(line.backward);
    cost.backward_input = seconds(line.backward_input);
    cost.backward_weights = seconds(line.backward_weights);
    cost.update =
        static_cast<double>(over(line.update[column.index], first, end)) * kNanosecond + rings[s];
    pipeline.stages.push_back(cost);
    if (s + 1 == layout.stages()) break;
    const std::int64_t cut = line.cut[static_cast<std::size_t>(end)];
    const placement::Send down =
        placement::send_between(*setting.topology, devices[s], devices[s + 1], cut);
    const placement::Send up =
        placement::send_between(*setting.topology, devices[s + 1], devices[s], cut);
    pipeline.send_forward.push_back(down.seconds);
    pipeline.hold_forward.push_back(down.hold);
    pipeline.send_backward.push_back(up.seconds);
    pipeline.hold_backward.push_back(up.hold);
  }
  return pipeline;
}

schedule::PipelineModel simulated_model(const Pipeline& pipeline) {
  schedule::PipelineModel model;
  for (const StageCost& stage : pipeline.stages) {
    model.stages.push_back({simulated_time(stage.forward), simulated_time(stage.backward),
                            simulated_time(stage.backward_input),
                            simulated_time(stage.backward_weights)});
  }
  const auto link = [](double seconds, double hold) {
    return schedule::LinkModel{
        .transfer = simulated_time(hold), .latency = simulated_time(seconds - hold), .trace = {}};
  };
  for (std::size_t b = 0; b < pipeline.send_forward.size(); ++b) {
    model.forward.push_back(link(pipeline.send_forward[b], pipeline.hold_forward[b]));
    model.backward.push_back(link(pipeline.send_backward[b], pipeline.hold_backward[b]));
  }
  return model;
}

double simulated_step(const Setting& setting, const Layout& layout) {
  return simulated_step(setting, layout, -1, 1);
}

double simulated_step(const Setting& setting, const Layout& layout, int boundary, double factor) {
  std::vector<double> ends(layout.stages(), 0), updates(layout.stages(), 0);
  double step = 0;
  const std::vector<double> rings = rings_of(setting, layout);
  Pipeline before;
  for (std::size_t r = 0; r < layout.devices.size(); ++r) {
    Pipeline pipeline = pipeline_of(setting, layout, r, rings);
    // Replicas on equal servers with equal shares take equally long.
    if (r > 0 && setting.micro_batches[r] == setting.micro_batches[r - 1] &&
        same_costs(pipeline, before)) {
      continue;
    }
    before = pipeline;
    if (boundary >= 0) {
      const auto b = static_cast<std::size_t>(boundary);
      for (const auto& [seconds, hold] :
           {std::pair(&pipeline.send_forward, &pipeline.hold_forward),
            std::pair(&pipeline.send_backward, &pipeline.hold_backward)}) {
        (*seconds)[b] += (*hold)[b] * (1 / factor - 1);
        (*hold)[b] /= factor;
      }
    }
    const auto timeline = schedule::simulate(schedule_of(setting, layout), setting.micro_batches[r],
                                             simulated_model(pipeline));
    if (!timeline) return kNever;
    step = std::max(step, to_seconds(timeline->step));
    for (std::size_t s = 0; s < ends.size(); ++s) {
      ends[s] = std::max(ends[s], to_seconds(schedule::end_of(*timeline, s)));
      updates[s] = pipeline.stages[s].update;
    }
  }
  if (const double tie = tie_seconds(setting, layout); tie > 0) {
    ends.front() = ends.back() = std::max(ends.front(), ends.back()) + tie;
  }
  for (std::size_t s = 0; s < ends.size(); ++s) step = std::max(step, ends[s] + updates[s]);
  return step;
}

double pivot_step(const Setting& setting, const Layout& layout) {
  double slowest = 0;
  const std::vector<double> rings = rings_of(setting, layout);
  for (std::size_t r = 0; r < layout.devices.size(); ++r) {
    const Pipeline pipeline = pipeline_of(setting, layout, r, rings);
    slowest = std::max(slowest,
                       step_forms(pipeline, setting.micro_batches[r], std::max(1, layout.k)).pivot);
  }
  return slowest;
}

schedule::StageMemory split_memory(const Setting& setting, const Layout& layout,
                                   std::size_t stage) {
  const Line& line = *layout.line;
  const int first = layout.first[stage], end = layout.first[stage + 1];
  const std::int64_t ranks = layout.ranks[stage];
  std::int64_t transient = 0;
  for (int i = first; i < end; ++i) {
    const auto node = static_cast<std::size_t>(line.nodes[static_cast<std::size_t>(i)]);
    transient = std::max(transient, setting.dag.split_transient[node]);
  }
  return {.activation_bytes = ceil_div(over(line.stash, first, end), ranks),
          .held_bytes = ceil_div(over(line.held, first, end), ranks),
          .in_backward_bytes = ceil_div(over(line.in_backward, first, end), ranks),
          .input_bytes = ceil_div(line.cut[static_cast<std::size_t>(first)], ranks),
          .output_bytes = ceil_div(line.cut[static_cast<std::size_t>(end)], ranks),
          .static_bytes = state_of(setting, line, first, end) + transient};
}

StageMemoryReport memory_of(const Setting& setting, const Layout& layout, std::size_t stage) {
  const Line& line = *layout.line;
  const int first = layout.first[stage], end = layout.first[stage + 1];
  const std::int64_t ranks = layout.ranks[stage];
  StageMemoryReport memory;
  memory.static_bytes = state_of(setting, line, first, end);
  memory.stash_bytes = layout.caps[stage] * ceil_div(over(line.stash, first, end), ranks);
  for (int i = first; i < end; ++i) {
    const auto node = static_cast<std::size_t>(line.nodes[static_cast<std::size_t>(i)]);
    memory.transient_bytes = std::max(memory.transient_bytes, setting.dag.transient[node]);
  }
  const schedule::StageMemory buffers{
      .activation_bytes = 0,
      .input_bytes = ceil_div(line.cut[static_cast<std::size_t>(first)], ranks),
      .output_bytes = ceil_div(line.cut[static_cast<std::size_t>(end)], ranks),
      .static_bytes = 0};
  const schedule::Schedule schedule = schedule_of(setting, layout);
  memory.buffer_bytes = schedule::memory_bytes(buffers, schedule, static_cast<int>(stage));
  if (layout.split) {
    const schedule::StageMemory split = split_memory(setting, layout, stage);
    memory.transient_bytes = split.static_bytes - memory.static_bytes;
    memory.stash_bytes = schedule::memory_bytes(split, schedule, static_cast<int>(stage)) -
                         split.static_bytes - memory.buffer_bytes;
  }
  memory.total_bytes =
      memory.static_bytes + memory.stash_bytes + memory.transient_bytes + memory.buffer_bytes;
  memory.limit_bytes = setting.kinds[static_cast<std::size_t>(layout.kinds[stage])].usable_bytes;
  return memory;
}

bool fits(const Setting& setting, const Layout& layout) {
  for (std::size_t s = 0; s < layout.stages(); ++s) {
    if (layout.first[s] >= layout.first[s + 1]) return false;
    const StageMemoryReport memory = memory_of(setting, layout, s);
    if (memory.limit_bytes > 0 && memory.total_bytes > memory.limit_bytes) return false;
  }
  return true;
}

}  // namespace weir::planner
