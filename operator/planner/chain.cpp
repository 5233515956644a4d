// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/chain.h"

#include <algorithm>
#include <cmath>

namespace weir::planner {
namespace {

std::int64_t over(const std::vector<std::int64_t>& sums, int first, int end) {
  return sums[static_cast<std::size_t>(end)] - sums[static_cast<std::size_t>(first)];
}

void append(std::vector<std::int64_t>& sums, std::int64_t value) {
  sums.push_back(sums.back() + value);
}

// The last layer that consumes each layer's output; in a chain the next one.
std::vector<int> last_consumers(const Model& model) {
  const int layers = static_cast<int>(model.layers.size());
  std::vector<int> last(model.layers.size(), -1);
  if (model.edges.empty()) {
    for (int i = 0; i + 1 < layers; ++i) last[static_cast<std::size_t>(i)] = i + 1;
  }
  for (const auto& [from, to] : model.edges) {
    int& consumer = last[static_cast<std::size_t>(from)];
    consumer = std::max(consumer, to);
  }
  return last;
}

}  // namespace

std::string edge_that_runs_back(const Model& model) {
  for (const auto& [from, to] : model.edges) {
    if (to > from) continue;
    return model.layers[static_cast<std::size_t>(from)].id + " -> " +
           model.layers[static_cast<std::size_t>(to)].id;
  }
  return {};
}

Chain chain_of(const Model& model, const std::vector<std::string>& classes, int micro_batch_size) {
  Chain chain;
  chain.layers = static_cast<int>(model.layers.size());
  chain.micro_batch_size = micro_batch_size;
  chain.state_factor = model.state_factor;
  for (const std::string& device_class : classes) {
    ClassSums sums{.forward = {0}, .backward = {0}, .update = {0}};
    for (const Layer& layer : model.layers) {
      const LayerTime time = layer_time(model, layer, device_class, micro_batch_size);
      append(sums.forward, time.forward.count());
      append(sums.backward, time.backward.count());
      append(sums.update, time.update.count());
    }
    chain.classes.push_back(std::move(sums));
  }
  chain.parameters = {0};
  chain.stash = {0};
  for (const Layer& layer : model.layers) {
    append(chain.parameters, layer.parameter_bytes);
    append(chain.stash, layer.stash_bytes_per_sample * micro_batch_size);
    chain.transient.push_back(layer.transient_bytes_per_sample * micro_batch_size +
                              layer.transient_bytes);
  }
  const std::vector<int> last = last_consumers(model);
  chain.cut.assign(model.layers.size() + 1, 0);
  for (std::size_t i = 0; i < last.size(); ++i) {
    for (int boundary = static_cast<int>(i) + 1; boundary <= last[i]; ++boundary) {
      chain.cut[static_cast<std::size_t>(boundary)] +=
          model.layers[i].output_bytes_per_sample * micro_batch_size;
    }
  }
  return chain;
}

schedule::StageTime stage_time(const Chain& chain, ClassIndex device_class, int first, int end) {
  const ClassSums& sums = chain.classes[device_class];
  return {.forward = std::chrono::nanoseconds(over(sums.forward, first, end)),
          .backward = std::chrono::nanoseconds(over(sums.backward, first, end))};
}

std::int64_t static_bytes(const Chain& chain, int first, int end) {
  const auto transient = std::max_element(chain.transient.begin() + first,
                                          chain.transient.begin() + std::max(end, first + 1));
  const double state = chain.state_factor * static_cast<double>(over(chain.parameters, first, end));
  return static_cast<std::int64_t>(std::ceil(state)) + *transient;
}

std::int64_t stash_bytes(const Chain& chain, int first, int end) {
  return over(chain.stash, first, end);
}

}  // namespace weir::planner
