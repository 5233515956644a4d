// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/setting.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "operator/planner/engines.h"
#include "worker/schedule/caps.h"

namespace weir::planner {
namespace {

constexpr int kMostMicroBatches = 512;  // of sizes that the planner tries by itself
constexpr int kMostSplits = 32;         // ranks of a stage with times of their own

std::vector<DeviceKind> kinds_of(const Cluster& cluster, std::vector<int>& kind_of) {
  std::vector<DeviceKind> kinds;
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    const Device& device = cluster.devices[d];
    const std::int64_t usable = usable_bytes(cluster, device);
    const auto same = std::ranges::find_if(kinds, [&](const DeviceKind& kind) {
      return kind.device_class == device.device_class && kind.usable_bytes == usable &&
             kind.first_stage == device.first_stage && kind.last_stage == device.last_stage;
    });
    const auto index = same - kinds.begin();
    if (same == kinds.end()) {
      kinds.push_back({device.device_class, usable, device.first_stage, device.last_stage, {}});
    }
    kinds[static_cast<std::size_t>(index)].devices.push_back(static_cast<int>(d));
    kind_of.push_back(static_cast<int>(index));
  }
  return kinds;
}

double factor_of(const Cluster& cluster, const std::string& name) {
  for (const DeviceClass& known : cluster.classes) {
    if (known.name == name) return known.speed_factor;
  }
  return 1;
}

}  // namespace

int Setting::micro_batches_of_bound() const {
  return std::accumulate(micro_batches.begin(), micro_batches.end(), 0) /
         static_cast<int>(micro_batches.size());
}

std::string edge_that_runs_back(const Model& model) {
  for (const auto& [from, to] : model.edges) {
    if (to > from) continue;
    return model.layers[static_cast<std::size_t>(from)].id + " -> " +
           model.layers[static_cast<std::size_t>(to)].id;
  }
  return {};
}

Result<std::vector<int>> micro_batch_sizes(const Request& request) {
  // Every replica has at least one micro-batch.
  const int batch = request.global_batch;
  const auto possible = [&](int size) {
    return batch % size == 0 && batch / size >= request.data_parallel;
  };
  if (request.micro_batch_size) {
    const int size = *request.micro_batch_size;
    if (size < 1 || batch % size != 0) {
      return invalid("batch.microBatchSize: " + std::to_string(size) +
                     " does not divide the global batch of " + std::to_string(batch));
    }
    if (!possible(size)) {
      return invalid("batch.microBatchSize: " + std::to_string(size) +
                     " leaves no micro-batch for one of " + std::to_string(request.data_parallel) +
                     " replicas");
    }
    return std::vector<int>{size};
  }
  std::vector<int> sizes;
  for (int size = 1; size <= batch; ++size) {
    if (possible(size) && batch / size / request.data_parallel <= kMostMicroBatches) {
      sizes.push_back(size);
    }
  }
  if (sizes.empty()) {
    return invalid("batch.globalBatchSize: " + std::to_string(batch) + " is too small for " +
                   std::to_string(request.data_parallel) + " replicas");
  }
  return sizes;
}

Result<Setting> setting_of(const Model& model, const Cluster& cluster, const Request& request,
                           const placement::Topology& topology, int micro_batch_size) {
  Setting setting;
  setting.model = &model;
  setting.cluster = &cluster;
  setting.request = &request;
  setting.topology = &topology;
  setting.kinds = kinds_of(cluster, setting.kind_of);
  setting.micro_batch_size = micro_batch_size;
  const int replicas = request.data_parallel;
  const int micro_batches = request.global_batch / micro_batch_size;
  for (int r = 0; r < replicas; ++r) {  // the first ones take what does not divide
    setting.micro_batches.push_back(micro_batches / replicas +
                                    (r < micro_batches % replicas ? 1 : 0));
  }
  std::vector<DagClass> columns;
  std::map<std::pair<std::string, int>, int> column_of;
  const auto column = [&](const std::string& name, int split) {
    const auto [found, fresh] =
        column_of.emplace(std::pair(name, split), static_cast<int>(columns.size()));
    if (fresh) columns.push_back({name, factor_of(cluster, name), split});
    return found->second;
  };
  for (const DeviceKind& kind : setting.kinds) {
    SyncClass device;
    device.count = static_cast<int>(kind.devices.size()) / replicas;
    device.usable_bytes = kind.usable_bytes;
    device.first_stage = kind.first_stage;
    device.last_stage = kind.last_stage;
    int most = request.most_ranks_per_stage == 0 ? device.count : request.most_ranks_per_stage;
    most = std::min({most, device.count, micro_batch_size, kMostSplits});
    device.columns = {column(kind.device_class, 1)};
    for (int r = 2; r <= most && model.scaling == Scaling::kInterpolate; ++r) {
      device.columns.push_back(column(kind.device_class, r));
    }
    setting.classes.push_back(std::move(device));
  }
  WEIR_TRY(setting.dag, dag_of(model, columns, micro_batch_size));
  return setting;
}

int stage_without_rank(const Setting& setting) {
  std::vector<int> left;
  for (const SyncClass& kind : setting.classes) left.push_back(kind.count);
  for (int s = 0;; ++s) {
    std::size_t best = left.size();
    for (std::size_t k = 0; k < left.size(); ++k) {
      const SyncClass& kind = setting.classes[k];
      if (left[k] == 0 || s < kind.first_stage || s > kind.last_stage) continue;
      if (best == left.size() || kind.last_stage < setting.classes[best].last_stage) best = k;
    }
    if (best == left.size()) return s;
    --left[best];
  }
}

double simple_bound(const Setting& setting) {
  double all = 0, heaviest = 0;
  int devices = 0;
  for (const SyncClass& kind : setting.classes) devices += kind.count;
  for (std::size_t node = 0; node < setting.dag.parameters.size(); ++node) {
    double device_seconds = -1, alone = -1;  // of one micro-batch, on the best kind and split
    for (const SyncClass& kind : setting.classes) {
      const auto most = static_cast<std::size_t>(std::max(1, kind.count));
      // Ranks with times of their own; beyond them the most gain most.
      for (std::size_t i = 1; i <= std::min(most, kind.columns.size() + 1); ++i) {
        const bool own = i <= kind.columns.size();
        const std::size_t r = own ? i : most;
        const DagTimes& times =
            setting.dag.classes[static_cast<std::size_t>(kind.columns[own ? r - 1 : 0])];
        const double seconds = 1e-9 *
                               static_cast<double>(times.forward[node] + times.backward[node]) /
                               static_cast<double>(own ? 1 : r);
        const double busy = seconds * static_cast<double>(r);
        if (device_seconds < 0 || busy < device_seconds) device_seconds = busy;
        if (alone < 0 || seconds < alone) alone = seconds;
      }
    }
    all += device_seconds;
    heaviest = std::max(heaviest, alone);
  }
  return setting.micro_batches_of_bound() * std::max(all / devices, heaviest);
}

std::string gb(std::int64_t bytes) {
  const std::int64_t tenths = (bytes + 50'000'000) / 100'000'000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
}

Error does_not_fit(const Setting& setting) {
  const Dag& dag = setting.dag;
  std::int64_t largest = 0, all = 0, state = 0, stash = 0;
  std::string class_of_largest;
  for (const DeviceKind& kind : setting.kinds) {
    if (kind.usable_bytes > largest) class_of_largest = kind.device_class;
    largest = std::max(largest, kind.usable_bytes);
    all += kind.usable_bytes * static_cast<std::int64_t>(kind.devices.size());
  }
  for (std::size_t node = 0; node < dag.parameters.size(); ++node) {
    const std::int64_t weights =
        state_bytes(dag.state_factor, dag.parameters[node], dag.frozen[node]);
    const std::int64_t alone = weights + dag.stash[node] + dag.transient[node];
    state += weights;
    stash += dag.stash[node];
    if (alone <= largest) continue;
    const Layer& layer = setting.model->layers[static_cast<std::size_t>(dag.layer[node])];
    return {Code::kNotFound, "no plan fits: layer \"" +
                                 (layer.description.empty() ? layer.id : layer.description) +
                                 "\" alone needs " + gb(alone) + " of " + gb(largest) +
                                 " GB on class " + class_of_largest};
  }
  const std::vector<int> counts = stage_counts(setting);
  const int stages = counts.empty() ? 1 : counts.back();
  return {Code::kNotFound,
          "no plan fits: no cut of " + setting.model->name + " into at most " +
              std::to_string(stages) + " stages fits with k=" +
              std::to_string(ks_of(*setting.request, setting.micro_batches.back()).front()) +
              ": weights and optimizer need " + gb(state) + " GB, activations of one micro-batch " +
              gb(stash) + " GB, all ranks have " + gb(all) + " GB usable"};
}

}  // namespace weir::planner
