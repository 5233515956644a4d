// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/group_sim.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "worker/base/units.h"

namespace weir::sim {
namespace {

// SDPipe's own numbers: 0.01 to 10 ms of patience at steps of a second, connection every 10 rounds,
// pairs of neighbours above 8 workers.
constexpr double kFirstPatience = 0.001, kLeastPatience = 1e-5, kMostPatience = 0.010;
constexpr int kConnectEvery = 10;
constexpr int kPairsAbove = 8;
constexpr double kSampleEvery = 2;

groups::Config config_of(const UnevenOptions& options) {
  groups::Config config;
  config.shares.assign(static_cast<std::size_t>(options.replicas), UnevenReplicas::kMicroBatches);
  config.stages = options.stages;
  config.settings.group_size_max = groups::usual_group_size_max(options.replicas);
  return config;
}

std::vector<double> equal(std::size_t count) {
  return std::vector<double>(count, 1 / static_cast<double>(count));
}

}  // namespace

GroupSim::GroupSim(const UnevenOptions& uneven, const GroupSimOptions& options, std::uint64_t seed)
    : options_of_(uneven),
      options_(options),
      world_(uneven, seed),
      task_(options.task ? std::make_unique<SmallTask>(uneven.replicas, uneven.stages, seed)
                         : nullptr),
      scheduler_(config_of(uneven), seed),
      estimate_(uneven.replicas, seed),
      replicas_(static_cast<std::size_t>(uneven.replicas)) {
  for (Replica& replica : replicas_) replica.done.resize(static_cast<std::size_t>(uneven.stages));
  for (int s = 0; s < uneven.stages; ++s) {
    per_stage_.push_back({.ready = {},
                          .graph = groups::SyncGraph(uneven.replicas),
                          .patience = std::vector<double>(replicas_.size(), kFirstPatience)});
  }
}

void GroupSim::at(double time, std::function<void()> what) {
  events_.push({time, sequence_++, std::move(what)});
}

GroupRun GroupSim::run() {
  if (options_.sync == Sync::kAllReduce) {
    run_all_reduce();
  } else {
    for (int p = 0; p < replicas(); ++p) begin(p);
    while (!events_.empty() && events_.top().time <= options_.horizon) {
      const Event event = events_.top();
      events_.pop();
      time_ = event.time;
      sample();
      event.what();
    }
  }
  GroupRun result;
  double steps = 0;
  for (const Replica& replica : replicas_) steps += static_cast<double>(replica.steps);
  result.throughput = steps / options_.horizon / replicas();
  result.group_size = groups_ > 0 ? members_ / groups_ : 0;
  result.contraction = windows_ > 0 ? std::exp(logs_ / windows_) : 1;
  if (samples_ > 0) {
    result.loss = losses_ / samples_;
    result.consensus_error = errors_ / samples_;
  }
  return result;
}

void GroupSim::sample() {
  if (!task_ || time_ < next_sample_) return;
  next_sample_ = std::max(time_ + kSampleEvery, 0.9 * options_.horizon);
  if (time_ < 0.9 * options_.horizon) return;
  losses_ += task_->loss();
  errors_ += task_->consensus_error();
  ++samples_;
}

void GroupSim::run_all_reduce() {
  std::vector<int> all(replicas_.size());
  std::iota(all.begin(), all.end(), 0);
  while (time_ < options_.horizon) {
    double end = 0;
    for (const int p : all) {
      end = std::max(end, time_ + world_.step_seconds(p, time_));
      ++replicas_[static_cast<std::size_t>(p)].steps;
      if (task_) task_->step(p, 1);
    }
    for (int s = 0; s < stages(); ++s) mix(all, s, equal(all.size()));
    time_ = end + world_.sync_seconds(all, end);
    ++groups_;
    members_ += static_cast<double>(all.size());
    sample();
  }
}

void GroupSim::begin(int p) {
  Replica& replica = replicas_[static_cast<std::size_t>(p)];
  replica.pending = stages();
  replica.applied = false;
  replica.seconds = world_.step_seconds(p, time_);
  replica.ready_at = time_ + replica.seconds;
  if (options_.sync == Sync::kGroups) {
    scheduler_.began(p, from_seconds(time_));
    return at(replica.ready_at, [this, p] { ready(p, 0); });
  }
  for (int s = 0; s < stages(); ++s) {
    at(std::max(time_, replica.ready_at - s * UnevenReplicas::kSkew),
       [this, p, s] { ready(p, s); });
  }
}

void GroupSim::ready(int p, int stage) {
  Replica& replica = replicas_[static_cast<std::size_t>(p)];
  if (!std::exchange(replica.applied, true)) {
    ++replica.steps;
    ++replica.progress;
    if (task_) task_->step(p, 1);
    if (replica.steps - window_begin_ >= kConnectEvery) {
      window_begin_ = replica.steps;
      logs_ += std::log(std::max(1e-12, estimate_.end_window()));
      ++windows_;
    }
  }
  if (options_.sync == Sync::kGroups) return ready_groups(p);
  ready_sdpipe(p, stage);
}

void GroupSim::ready_groups(int p) {
  Replica& replica = replicas_[static_cast<std::size_t>(p)];
  if (replica.mean_at > time_) return at(replica.mean_at, [this, p] { ready_groups(p); });
  if (task_) task_->end_mix(p);
  take(scheduler_.arrived({.replica = p,
                           .step = replica.steps,
                           .progress = replica.progress,
                           .step_seconds = replica.seconds,
                           .received = std::exchange(replica.received, {}),
                           .average_seconds = std::exchange(replica.average_seconds, 0)},
                          from_seconds(time_)));
}

void GroupSim::take(const std::vector<groups::FormedGroup>& grants) {
  for (const groups::FormedGroup& grant : grants) {
    ++groups_;
    members_ += static_cast<double>(grant.members.size());
    const double seconds = world_.sync_seconds(grant.members, time_);
    for (const int p : grant.members) {
      Replica& replica = replicas_[static_cast<std::size_t>(p)];
      replica.progress = grant.progress;
      replica.received = world_.received(p, grant.members, time_);
      replica.average_seconds = seconds;
      replica.mean_at = time_ + seconds;
    }
    const auto mix_and_go_on = [this, grant] {
      for (int s = 0; s < stages(); ++s) mix(grant.members, s, grant.weights, grant.overlaps);
      for (const int p : grant.members) {
        for (int s = 0; s < stages(); ++s) finish_stage(p, s);
      }
    };
    if (grant.overlaps) {
      mix_and_go_on();
    } else {
      at(time_ + seconds, mix_and_go_on);
    }
  }
  if (const auto timer = scheduler_.timer()) {
    at(std::max(time_, to_seconds(*timer)), [this, timer] {
      if (scheduler_.timer() == timer) take(scheduler_.tick(*timer));
    });
  }
}

void GroupSim::ready_sdpipe(int p, int stage) {
  StageScheduler& scheduler = per_stage_[static_cast<std::size_t>(stage)];
  scheduler.ready.push_back(p);
  scheduler.graph.merge(scheduler.ready.front(), p);
  const bool pairs = options_.sync == Sync::kFirstPairs;
  if (scheduler.ready.size() == 1) {
    // Stages connect one at a time, under a lock.
    scheduler.connecting =
        scheduler.connection_due && (locked_stage_ == -1 || locked_stage_ == stage);
    if (scheduler.connecting) locked_stage_ = stage;
    if (!pairs) {
      at(time_ + scheduler.patience[static_cast<std::size_t>(p)],
         [this, stage, generation = scheduler.generation] {
           const StageScheduler& now = per_stage_[static_cast<std::size_t>(stage)];
           if (now.generation == generation && !now.ready.empty() && !now.connecting) close(stage);
         });
    }
  }
  const std::size_t full = pairs ? 2 : replicas_.size();
  if (scheduler.connecting ? scheduler.graph.connected() : scheduler.ready.size() >= full) {
    close(stage);
  }
}

void GroupSim::close(int stage) {
  StageScheduler& scheduler = per_stage_[static_cast<std::size_t>(stage)];
  std::vector<int> group = std::exchange(scheduler.ready, {});
  std::ranges::sort(group);
  ++scheduler.generation;
  std::vector<std::vector<int>> parts{group};
  if (replicas() > kPairsAbove && !scheduler.connecting && options_.sync == Sync::kSdpipe) {
    parts.clear();
    for (std::size_t i = 0; i < group.size(); i += 2) {
      parts.emplace_back(
          group.begin() + static_cast<std::ptrdiff_t>(i),
          group.begin() + static_cast<std::ptrdiff_t>(std::min(i + 2, group.size())));
    }
  }
  for (const auto& part : parts) {
    if (stage == 0) {
      ++groups_;
      members_ += static_cast<double>(part.size());
    }
    at(time_ + world_.sync_seconds(part, time_), [this, part, stage] {
      mix(part, stage, equal(part.size()));
      for (const int p : part) finish_stage(p, stage);
    });
    for (const int p : part) {
      double& patience = scheduler.patience[static_cast<std::size_t>(p)];
      patience = part.size() < 2 ? std::min(2 * patience, kMostPatience)
                                 : std::max(0.9 * patience, kLeastPatience);
    }
  }
  if (scheduler.connecting) {
    scheduler.graph.reset();
    locked_stage_ = -1;
    scheduler.connection_due = scheduler.connecting = false;
  }
  const std::int64_t window = static_cast<std::int64_t>(replicas()) * kConnectEvery;
  const auto count = static_cast<std::int64_t>(group.size());
  if ((scheduler.accumulated + count) / window > scheduler.accumulated / window) {
    scheduler.connection_due = true;
  }
  scheduler.accumulated += count;
}

void GroupSim::mix(const std::vector<int>& group, int stage, const std::vector<double>& weights,
                   bool beside_step) {
  if (group.size() < 2) return;
  if (stage == 0) estimate_.mix(group, weights);
  if (!task_) return;
  if (beside_step) {
    task_->begin_mix(group, stage, weights);
  } else {
    task_->mix(group, stage, weights);
  }
}

void GroupSim::finish_stage(int p, int stage) {
  Replica& replica = replicas_[static_cast<std::size_t>(p)];
  replica.done[static_cast<std::size_t>(stage)] = time_;
  if (--replica.pending > 0) return;
  double next = replica.ready_at;
  for (int s = 0; s < stages(); ++s) {
    next =
        std::max(next, replica.done[static_cast<std::size_t>(s)] - s * UnevenReplicas::kSkew / 2);
  }
  at(std::max(next, time_), [this, p] { begin(p); });
}

}  // namespace weir::sim
