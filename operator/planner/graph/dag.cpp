// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/graph/dag.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>

#include "worker/base/check.h"

namespace weir::planner {
namespace {

constexpr double kMostSum = 4.6e18;  // 2^62: sums over a model stay far from overflow

using Edges = std::vector<std::pair<int, int>>;

Edges edges_of(const Model& model) {
  if (!model.edges.empty() || model.edges_given) return model.edges;
  Edges chain;
  for (int i = 0; i + 1 < static_cast<int>(model.layers.size()); ++i) chain.emplace_back(i, i + 1);
  return chain;
}

// Layers in Kahn's order, the smallest free index first; shorter than the model on a cycle.
std::vector<int> kahn(int layers, const Edges& edges) {
  std::vector<std::vector<int>> consumers(static_cast<std::size_t>(layers));
  std::vector<int> open(static_cast<std::size_t>(layers), 0);
  for (const auto& [from, to] : edges) {
    consumers[static_cast<std::size_t>(from)].push_back(to);
    ++open[static_cast<std::size_t>(to)];
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> free;
  for (int i = 0; i < layers; ++i) {
    if (open[static_cast<std::size_t>(i)] == 0) free.push(i);
  }
  std::vector<int> order;
  while (!free.empty()) {
    const int layer = free.top();
    free.pop();
    order.push_back(layer);
    for (const int next : consumers[static_cast<std::size_t>(layer)]) {
      if (--open[static_cast<std::size_t>(next)] == 0) free.push(next);
    }
  }
  return order;
}

std::int64_t times_factor(std::chrono::nanoseconds time, double factor) {
  return std::llround(static_cast<double>(time.count()) * factor);
}

// Times of every node, in the order of `order`, as DagClass asks for them.
DagTimes times_of(const Model& model, const DagClass& wanted, int samples,
                  const std::vector<int>& order) {
  DagTimes times;
  for (const int index : order) {
    const Layer& layer = model.layers[static_cast<std::size_t>(index)];
    const bool measured = layer.times.contains(wanted.name);
    const double speed = measured ? 1 : wanted.speed_factor;
    LayerTime time = layer_time(model, layer, wanted.name, samples);
    if (wanted.split > 1) {
      // Linear between whole counts of samples.
      const int low = std::max(1, samples / wanted.split);
      const double part =
          std::max(0.0, static_cast<double>(samples) / wanted.split - static_cast<double>(low));
      time = layer_time(model, layer, wanted.name, low);
      if (part > 0) {
        const LayerTime above = layer_time(model, layer, wanted.name, low + 1);
        for (const auto of : {&LayerTime::forward, &LayerTime::backward, &LayerTime::backward_input,
                              &LayerTime::backward_weights}) {
          time.*of += std::chrono::nanoseconds(times_factor(above.*of - time.*of, part));
        }
      }
    }
    times.forward.push_back(times_factor(time.forward, speed));
    times.backward.push_back(times_factor(time.backward, speed));
    times.update.push_back(times_factor(time.update, speed));
    times.backward_input.push_back(times_factor(time.backward_input, speed));
    times.backward_weights.push_back(times_factor(time.backward_weights, speed));
  }
  return times;
}

bool overflows(const std::vector<std::int64_t>& values) {
  double sum = 0;
  for (const std::int64_t value : values) sum += static_cast<double>(value);
  return !(sum < kMostSum);
}

bool overflows(const Dag& dag) {
  for (const DagTimes& times : dag.classes) {
    if (overflows(times.forward) || overflows(times.backward) || overflows(times.update) ||
        overflows(times.backward_input) || overflows(times.backward_weights)) {
      return true;
    }
  }
  return overflows(dag.parameters) || overflows(dag.frozen) || overflows(dag.output) ||
         overflows(dag.stash) || overflows(dag.transient) || overflows(dag.in_backward) ||
         overflows(dag.split_transient);
}

// Bytes of a micro-batch; too large values saturate and are refused by `overflows`.
std::int64_t bytes_of(std::int64_t per_sample, int samples) {
  if (static_cast<double>(per_sample) * samples >= kMostSum) {
    return static_cast<std::int64_t>(kMostSum);
  }
  return per_sample * samples;
}

}  // namespace

bool Dag::chain() const {
  for (std::size_t i = 1; i < static_cast<std::size_t>(nodes); ++i) {
    if (!std::ranges::binary_search(predecessors[i], static_cast<int>(i) - 1)) {
      return false;
    }
  }
  return true;
}

Dag dag_from(Dag parts, const std::vector<std::pair<int, int>>& edges) {
  const auto count = static_cast<std::size_t>(parts.nodes);
  for (auto* values : {&parts.parameters, &parts.frozen, &parts.output, &parts.stash,
                       &parts.transient, &parts.held, &parts.in_backward, &parts.split_transient}) {
    values->resize(count, 0);
  }
  for (DagTimes& times : parts.classes) {
    for (auto* values : {&times.forward, &times.backward, &times.update, &times.backward_input,
                         &times.backward_weights}) {
      values->resize(count, 0);
    }
  }
  if (parts.layer.empty()) {
    for (int i = 0; i < parts.nodes; ++i) parts.layer.push_back(i);
  }
  parts.predecessors.assign(count, {});
  parts.successors.assign(count, {});
  for (const auto& [from, to] : edges) {
    WEIR_CHECK(from >= 0 && from < to && to < parts.nodes, "nodes are in topological order");
    parts.successors[static_cast<std::size_t>(from)].push_back(to);
    parts.predecessors[static_cast<std::size_t>(to)].push_back(from);
  }
  for (auto* lists : {&parts.predecessors, &parts.successors}) {
    for (std::vector<int>& list : *lists) {
      std::ranges::sort(list);
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
  }
  return parts;
}

Result<Dag> dag_of(const Model& model, const std::vector<DagClass>& classes, int micro_batch_size) {
  WEIR_CHECK(micro_batch_size >= 1, "a micro-batch holds samples");
  const int layers = static_cast<int>(model.layers.size());
  Edges edges = edges_of(model);
  for (const auto& [from, to] : edges) {
    if (std::min(from, to) < 0 || std::max(from, to) >= layers) {
      return invalid("edges: an end is no layer");
    }
  }
  Dag dag;
  dag.nodes = layers;
  dag.micro_batch_size = micro_batch_size;
  dag.state_factor = model.state_factor;
  dag.layer = kahn(layers, edges);
  if (static_cast<int>(dag.layer.size()) != layers) return invalid("edges: form a cycle");
  std::vector<int> node_of(model.layers.size());
  for (int node = 0; node < layers; ++node) {
    node_of[static_cast<std::size_t>(dag.layer[static_cast<std::size_t>(node)])] = node;
  }
  for (auto& [from, to] : edges) {
    from = node_of[static_cast<std::size_t>(from)];
    to = node_of[static_cast<std::size_t>(to)];
  }
  for (const DagClass& wanted : classes) {
    dag.classes.push_back(times_of(model, wanted, micro_batch_size, dag.layer));
  }
  for (const int index : dag.layer) {
    const Layer& layer = model.layers[static_cast<std::size_t>(index)];
    dag.parameters.push_back(layer.parameter_bytes);
    dag.frozen.push_back(layer.frozen_bytes);
    dag.output.push_back(bytes_of(layer.output_bytes_per_sample, micro_batch_size));
    dag.stash.push_back(bytes_of(layer.stash_bytes_per_sample, micro_batch_size) +
                        layer.stash_bytes);
    dag.transient.push_back(bytes_of(layer.transient_bytes_per_sample, micro_batch_size) +
                            layer.transient_bytes);
    dag.held.push_back(bytes_of(layer.held_bytes_per_sample, micro_batch_size));
    dag.in_backward.push_back(std::max(dag.held.back(), dag.stash.back()));
    dag.split_transient.push_back(
        bytes_of(layer.split_transient_bytes_per_sample, micro_batch_size) + layer.transient_bytes);
  }
  dag = dag_from(std::move(dag), edges);
  if (overflows(dag)) return invalid("the model's times or sizes sum to over 2^62");
  return dag;
}

}  // namespace weir::planner
