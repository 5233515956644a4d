// SPDX-License-Identifier: Apache-2.0
// Written to be obviously right, not to be fast: every figure is a loop over the nodes, edges and
// ranks that it is about.
#include "operator/planner/tool/check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "worker/base/units.h"
#include "worker/schedule/validate.h"

namespace weir::planner {
namespace {

struct Seconds {
  double forward = 0, backward = 0, update = 0;
};

class Checker {
 public:
  Checker(const Model& model, const Cluster& cluster, const schedule::Plan& plan,
          const CheckOptions& options)
      : model_(model), cluster_(cluster), plan_(plan), options_(options) {}

  CheckedPlan run() {
    edges_ = model_.edges;
    const int layers = static_cast<int>(model_.layers.size());
    const bool chain = model_.edges.empty() && !model_.edges_given;
    for (int i = 0; chain && i + 1 < layers; ++i) edges_.emplace_back(i, i + 1);
    if (!check_order() || !check_cover()) return std::move(result_);
    check_edges();
    check_schedule();
    check_ranks();
    if (!result_.broken.empty()) return std::move(result_);
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) price(s);
    return std::move(result_);
  }

 private:
  void broken(const std::string& line) { result_.broken.push_back(line); }

  bool check_order() {
    order_ = options_.order;
    if (order_.empty()) {
      for (std::size_t i = 0; i < model_.layers.size(); ++i) order_.push_back(static_cast<int>(i));
    }
    std::vector<int> sorted = order_;
    std::ranges::sort(sorted);
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      if (sorted[i] == static_cast<int>(i)) continue;
      broken("order: not every layer once");
      return false;
    }
    if (sorted.size() == model_.layers.size()) return true;
    broken("order: " + std::to_string(sorted.size()) + " positions for " +
           std::to_string(model_.layers.size()) + " layers");
    return false;
  }

  bool check_cover() {
    stage_of_.assign(model_.layers.size(), -1);
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
      const schedule::LayerRange& range = plan_.stages[s];
      const std::string here = "stages[" + std::to_string(s) + "].layers: ";
      CheckedStage stage;
      if (range.first > range.last) broken(here + "holds no layer");
      for (int p = range.first; p <= range.last; ++p) {
        if (p < 0 || p >= static_cast<int>(order_.size())) {
          broken(here + std::to_string(p) + " is no position");
          return false;
        }
        const int layer = order_[static_cast<std::size_t>(p)];
        int& owner = stage_of_[static_cast<std::size_t>(layer)];
        if (owner >= 0) broken(here + std::to_string(p) + " is in two stages");
        owner = static_cast<int>(s);
        stage.layers.push_back(layer);
      }
      std::ranges::sort(stage.layers);
      result_.stages.push_back(std::move(stage));
    }
    for (std::size_t i = 0; i < stage_of_.size(); ++i) {
      if (stage_of_[i] < 0) broken("stages: layer " + model_.layers[i].id + " is in none");
    }
    if (plan_.stages.empty()) broken("stages: empty");
    return result_.broken.empty();
  }

  int stage_of(int layer) const { return stage_of_[static_cast<std::size_t>(layer)]; }

  void check_edges() {
    for (const auto& [from, to] : edges_) {
      if (stage_of(from) <= stage_of(to)) continue;
      broken("stages: layer " + model_.layers[static_cast<std::size_t>(from)].id +
             " is behind its consumer " + model_.layers[static_cast<std::size_t>(to)].id);
    }
  }

  void check_schedule() {
    const std::vector<int>& caps = plan_.schedule.caps;
    if (caps.size() != plan_.stages.size()) {
      broken("schedule.caps: " + std::to_string(caps.size()) + " values for " +
             std::to_string(plan_.stages.size()) + " stages");
    }
    if (plan_.micro_batches.empty()) broken("microBatches: empty");
    for (std::size_t s = 0; s < caps.size(); ++s) {
      const std::string here = "schedule.caps[" + std::to_string(s) + "]: ";
      if (caps[s] < 1) broken(here + "below 1");
      if (s > 0 && caps[s] > caps[s - 1]) broken(here + "above the stage before");
      for (const int share : plan_.micro_batches) {
        if (caps[s] > share) broken(here + "above the micro-batches of a step");
      }
    }
    if (plan_.schedule.micro_batch_size < 1) broken("schedule.microBatchSize: below 1");
    if (const std::string why = schedule::too_large_a_step(plan_); !why.empty()) broken(why);
  }

  const Device* device_of(const schedule::RankPlace& rank) const {
    for (const Device& device : cluster_.devices) {
      if (device.pod == rank.pod && device.local == rank.local) return &device;
    }
    return nullptr;
  }

  void check_ranks() {
    std::set<std::pair<std::string, int>> used;
    for (std::size_t r = 0; r < plan_.ranks.size(); ++r) {
      const schedule::RankPlace& rank = plan_.ranks[r];
      const std::string here = "ranks[" + std::to_string(r) + "]: ";
      const Device* device = device_of(rank);
      if (device == nullptr) {
        broken(here + "no device " + rank.pod + "/" + std::to_string(rank.local));
        continue;
      }
      if (!used.insert({rank.pod, rank.local}).second) {
        broken(here + rank.pod + "/" + std::to_string(rank.local) + " is used twice");
      }
      if (rank.stage < device->first_stage || rank.stage > device->last_stage) {
        broken(here + rank.pod + " may not run stage " + std::to_string(rank.stage));
      }
      members_[{rank.replica, rank.stage}].push_back(device);
    }
    for (std::size_t p = 0; p < plan_.micro_batches.size(); ++p) {
      for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
        check_members(static_cast<int>(p), static_cast<int>(s));
      }
    }
  }

  void check_members(int replica, int stage) {
    const std::string here =
        "ranks of replica " + std::to_string(replica) + ", stage " + std::to_string(stage) + ": ";
    const auto found = members_.find({replica, stage});
    if (found == members_.end()) {
      broken(here + "none");
      return;
    }
    if (found->second.size() > 1 && !options_.many_ranks) broken(here + "more than one");
    for (const Device* device : found->second) {
      if (device->device_class != found->second.front()->device_class) {
        broken(here + "of different classes");
        return;
      }
    }
  }

  // Samples may be a fraction, because ranks may share a micro-batch.
  Seconds times(const Layer& layer, const std::string& device_class, double samples) const {
    const int low = std::max(1, static_cast<int>(samples));
    const LayerTime at_low = layer_time(model_, layer, device_class, low);
    const LayerTime at_high = layer_time(model_, layer, device_class, low + 1);
    double part = samples - low;
    if (model_.scaling == Scaling::kInterpolate) part = std::max(0.0, part);
    const auto between = [&](std::chrono::nanoseconds a, std::chrono::nanoseconds b) {
      return to_seconds(a) + part * to_seconds(b - a);
    };
    double speed = 1;
    for (const DeviceClass& known : cluster_.classes) {
      if (known.name == device_class && layer.times.count(device_class) == 0) {
        speed = known.speed_factor;
      }
    }
    return {speed * between(at_low.forward, at_high.forward),
            speed * between(at_low.backward, at_high.backward), speed * to_seconds(at_low.update)};
  }

  std::int64_t samples() const { return plan_.schedule.micro_batch_size; }

  // Bytes of one micro-batch that cross the boundary behind stage s.
  std::int64_t cut_behind(int s) const {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < model_.layers.size(); ++i) {
      if (stage_of_[i] > s) continue;
      const bool needed = std::ranges::any_of(edges_, [&](const auto& edge) {
        return edge.first == static_cast<int>(i) && stage_of(edge.second) > s;
      });
      if (needed) bytes += model_.layers[i].output_bytes_per_sample * samples();
    }
    return bytes;
  }

  void price(std::size_t s) {
    CheckedStage& stage = result_.stages[s];
    const int index = static_cast<int>(s);
    const std::vector<const Device*>& first = members_.at({0, index});
    stage.device_class = first.front()->device_class;
    stage.ranks = static_cast<int>(first.size());
    for (std::size_t p = 0; p < plan_.micro_batches.size(); ++p) {
      Seconds sum;
      const std::vector<const Device*>& ranks = members_.at({static_cast<int>(p), index});
      for (const int layer : stage.layers) {
        const Seconds more =
            times(model_.layers[static_cast<std::size_t>(layer)], ranks.front()->device_class,
                  static_cast<double>(samples()) / static_cast<double>(ranks.size()));
        sum.forward += more.forward;
        sum.backward += more.backward;
        sum.update += more.update;
      }
      stage.forward = std::max(stage.forward, sum.forward);
      stage.backward = std::max(stage.backward, sum.backward);
      stage.update = std::max(stage.update, sum.update);
    }
    if (s + 1 < plan_.stages.size()) price_boundary(stage, index);
    price_all_reduce(stage, index);
    weigh(stage, index);
  }

  void price_boundary(CheckedStage& stage, int s) {
    stage.cut_bytes = cut_behind(s);
    for (std::size_t p = 0; p < plan_.micro_batches.size(); ++p) {
      const auto& here = members_.at({static_cast<int>(p), s});
      const auto& next = members_.at({static_cast<int>(p), s + 1});
      const auto ways =
          static_cast<std::int64_t>(options_.sync0 ? 1 : std::min(here.size(), next.size()));
      const std::int64_t bytes = (stage.cut_bytes + ways - 1) / ways;
      for (const Device* a : here) {
        for (const Device* b : next) {
          const double there = transfer_seconds(link_between(cluster_, a->node, b->node), bytes);
          const double back = transfer_seconds(link_between(cluster_, b->node, a->node), bytes);
          stage.send_forward = std::max(stage.send_forward, there);
          stage.send_backward = std::max(stage.send_backward, back);
        }
      }
    }
  }

  void price_all_reduce(CheckedStage& stage, int s) {
    std::vector<const Device*> ring;
    for (std::size_t p = 0; p < plan_.micro_batches.size(); ++p) {
      const auto& ranks = members_.at({static_cast<int>(p), s});
      ring.insert(ring.end(), ranks.begin(), ranks.end());
    }
    std::int64_t bytes = 0;
    for (const int layer : stage.layers) {
      bytes += model_.layers[static_cast<std::size_t>(layer)].parameter_bytes;
    }
    const auto n = static_cast<std::int64_t>(ring.size());
    if (n < 2 || bytes == 0) return;
    for (std::size_t i = 0; i < ring.size(); ++i) {
      const LinkRate link =
          link_between(cluster_, ring[i]->node, ring[(i + 1) % ring.size()]->node);
      const double rate = effective_rate(link, (bytes + n - 1) / n);
      const auto rounds = static_cast<double>(2 * (n - 1));
      const double latency = options_.sync0 ? 0 : rounds * to_seconds(link.latency);
      stage.all_reduce =
          std::max(stage.all_reduce,
                   rounds / static_cast<double>(n) * static_cast<double>(bytes) / rate + latency);
    }
  }

  void weigh(CheckedStage& stage, int s) {
    CheckedMemory& memory = stage.memory;
    const std::int64_t ranks = stage.ranks;
    const std::int64_t cap = plan_.schedule.caps[static_cast<std::size_t>(s)];
    const auto& split = plan_.schedule.split;
    std::int64_t parameters = 0, frozen = 0, stash = 0, held = 0, in_backward = 0;
    for (const int i : stage.layers) {
      const Layer& layer = model_.layers[static_cast<std::size_t>(i)];
      parameters += layer.parameter_bytes;
      frozen += layer.frozen_bytes;
      const std::int64_t kept = layer.stash_bytes_per_sample * samples() + layer.stash_bytes;
      stash += kept;
      held += layer.held_bytes_per_sample * samples();
      in_backward += std::max(layer.held_bytes_per_sample * samples(), kept);
      const std::int64_t transient =
          split ? layer.split_transient_bytes_per_sample : layer.transient_bytes_per_sample;
      memory.transient_bytes =
          std::max(memory.transient_bytes, transient * samples() + layer.transient_bytes);
    }
    const double factor = options_.sync0 ? 4 : model_.state_factor;
    memory.static_bytes =
        static_cast<std::int64_t>(std::ceil(factor * static_cast<double>(parameters))) + frozen;
    if (options_.sync0) {
      memory.transient_bytes = 0;
      memory.stash_bytes = (cap * stash + ranks - 1) / ranks;
    } else {
      const auto of_rank = [&](std::int64_t bytes) { return (bytes + ranks - 1) / ranks; };
      memory.stash_bytes = cap * of_rank(stash);
      if (split) {
        // One micro-batch is in B. Of the others the cap limits those before it, `held` all.
        const std::int64_t others = split->held[static_cast<std::size_t>(s)] - 1;
        const std::int64_t before = of_rank(stash) > of_rank(held) ? cap - 1 : 0;
        memory.stash_bytes = std::max({of_rank(in_backward), of_rank(stash), of_rank(held)}) +
                             before * of_rank(stash) + (others - before) * of_rank(held);
      }
      // Send window and receive slots: inputs 2k+3, outputs k+5; k=1 counts as 2.
      std::int64_t k = 2;
      const auto stages = static_cast<std::int64_t>(plan_.stages.size());
      for (std::int64_t i = 0; i < stages; ++i) {
        const std::int64_t behind = stages - i;
        k = std::max(k, (plan_.schedule.caps[static_cast<std::size_t>(i)] + behind - 1) / behind);
      }
      const std::int64_t in = s == 0 ? 0 : (cut_behind(s - 1) + ranks - 1) / ranks;
      const std::int64_t out =
          s + 1 == static_cast<int>(stages) ? 0 : (cut_behind(s) + ranks - 1) / ranks;
      memory.buffer_bytes = (2 * k + 3) * in + (k + 5) * out;
    }
    memory.total =
        memory.static_bytes + memory.stash_bytes + memory.transient_bytes + memory.buffer_bytes;
    check_memory(memory, s);
  }

  void check_memory(CheckedMemory& memory, int s) {
    for (const auto& [place, devices] : members_) {
      if (place.second != s) continue;
      for (const Device* device : devices) {
        const std::int64_t limit =
            options_.sync0 ? device->memory_bytes : usable_bytes(cluster_, *device);
        if (limit > 0 && (memory.limit == 0 || limit < memory.limit)) memory.limit = limit;
      }
    }
    if (memory.limit == 0 || memory.total <= memory.limit) return;
    broken("stages[" + std::to_string(s) + "]: needs " + std::to_string(memory.total) + " of " +
           std::to_string(memory.limit) + " bytes");
  }

  const Model& model_;
  const Cluster& cluster_;
  const schedule::Plan& plan_;
  const CheckOptions& options_;
  std::vector<std::pair<int, int>> edges_;
  std::vector<int> order_, stage_of_;
  std::map<std::pair<int, int>, std::vector<const Device*>> members_;  // by (replica, stage)
  CheckedPlan result_;
};

}  // namespace

CheckedPlan check_plan(const Model& model, const Cluster& cluster, const schedule::Plan& plan,
                       const CheckOptions& options) {
  return Checker(model, cluster, plan, options).run();
}

}  // namespace weir::planner
