// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "operator/placement/assign.h"

namespace weir::placement {
namespace {

class Builder {
 public:
  Builder(const Topology& topology, const Task& task)
      : topology_(topology),
        task_(task),
        used_(static_cast<std::size_t>(topology.servers()), 0),
        taken_(task.kind_of.size(), false) {
    for (int d = 0; d < topology.devices(); ++d) {
      const auto kind = static_cast<std::size_t>(task.kind_of[static_cast<std::size_t>(d)]);
      if (free_.size() <= kind) free_.resize(kind + 1, std::vector<int>(used_.size(), 0));
      ++free_[kind][static_cast<std::size_t>(topology.server_of(d))];
    }
  }

  // Devices for `count` ranks of one kind.
  std::vector<int> take(int kind, int count, Policy policy) {
    std::vector<int> result;
    while (static_cast<int>(result.size()) < count) {
      const int server = next_server(kind, policy);
      if (server < 0) return {};
      int wanted = count - static_cast<int>(result.size());
      if (policy == Policy::kScatterFirst) wanted = 1;
      for (const int d : topology_.devices_on(server)) {
        const auto i = static_cast<std::size_t>(d);
        if (wanted == 0) break;
        if (taken_[i] || task_.kind_of[i] != kind) continue;
        taken_[i] = true;
        ++used_[static_cast<std::size_t>(server)];
        --free_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(server)];
        result.push_back(d);
        --wanted;
      }
    }
    return result;
  }

 private:
  // The first of the best servers that have a free device of this kind; -1 = none has one.
  int next_server(int kind, Policy policy) const {
    int best = -1;
    std::pair<int, int> best_rank;
    if (static_cast<std::size_t>(kind) >= free_.size()) return -1;
    for (int s = 0; s < topology_.servers(); ++s) {
      const auto i = static_cast<std::size_t>(s);
      const int open = free_[static_cast<std::size_t>(kind)][i];
      if (open == 0) continue;
      std::pair<int, int> rank;  // smaller is better
      switch (policy) {
        case Policy::kFreshFirst:
          rank = {used_[i] > 0 ? 1 : 0, -open};
          break;
        case Policy::kAppendFirst:
          rank = {used_[i] > 0 ? 0 : 1, open};
          break;
        case Policy::kScatterFirst:
          rank = {used_[i], -open};
          break;
      }
      if (best >= 0 && rank >= best_rank) continue;
      best = s;
      best_rank = rank;
    }
    return best;
  }

  const Topology& topology_;
  const Task& task_;
  std::vector<int> used_;               // by server
  std::vector<std::vector<int>> free_;  // by kind and server
  std::vector<bool> taken_;
};

}  // namespace

std::optional<Assignment> constructed(const Topology& topology, const Task& task, Policy policy,
                                      bool by_stage) {
  Builder builder(topology, task);
  const std::size_t stages = task.kinds.size();
  const auto replicas = static_cast<std::size_t>(task.replicas);
  Assignment result(replicas, std::vector<std::vector<int>>(stages));
  // Devices are taken for one stage of all replicas at a time, or for one stage of one replica.
  const std::size_t groups = by_stage ? stages : stages * replicas;
  for (std::size_t i = 0; i < groups; ++i) {
    const std::size_t s = i % stages;
    const auto ranks = static_cast<std::size_t>(task.ranks[s]);
    const std::size_t members = by_stage ? replicas : 1;
    const std::vector<int> devices =
        builder.take(task.kinds[s], static_cast<int>(ranks * members), policy);
    if (devices.empty()) return std::nullopt;
    for (std::size_t m = 0; m < members; ++m) {
      const auto from = devices.begin() + static_cast<std::ptrdiff_t>(m * ranks);
      result[by_stage ? m : i / stages][s].assign(from, from + static_cast<std::ptrdiff_t>(ranks));
    }
  }
  return result;
}

}  // namespace weir::placement
