// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/adapted_replicas.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "worker/base/gain.h"
#include "worker/base/text.h"
#include "worker/base/units.h"

namespace weir::sim {
namespace {

constexpr int kOutcomeSteps = 10;  // operator/adaptation/gate/README.md "Outcome"
constexpr std::chrono::seconds kStale{60};

estimator::SystemTime wall(double time) {
  return estimator::SystemTime(std::chrono::milliseconds(std::llround(1000 * time) + 1));
}

}  // namespace

AdaptedReplicas::AdaptedReplicas(AdaptedOptions options, std::uint64_t seed)
    : options_(std::move(options)), next_scrape_(options_.scrape), next_tick_(options_.tick) {
  for (std::size_t i = 0; i < options_.regimes.size(); ++i) {
    worlds_.emplace_back(options_.regimes[i].options, mix_seed(seed, i));
  }
  const UnevenOptions& first = options_.regimes.front().options;
  input_.spec = options_.spec;
  input_.current = shares::first_policy(options_.spec, first.replicas);
  input_.shares.assign(static_cast<std::size_t>(first.replicas), UnevenReplicas::kMicroBatches);
  input_.stages = first.stages;
  replicas_.resize(input_.shares.size());
}

UnevenReplicas& AdaptedReplicas::world() {
  std::size_t now = 0;
  while (now + 1 < worlds_.size() && options_.regimes[now + 1].begin <= time_) ++now;
  return worlds_[now];
}

double AdaptedReplicas::step_seconds(int p) {
  const double share = static_cast<double>(input_.shares[static_cast<std::size_t>(p)]) /
                       UnevenReplicas::kMicroBatches;
  return world().step_seconds(p, time_, share);
}

void AdaptedReplicas::count(int p, double seconds) {
  auto& counter = counters_.replicas[p];
  ++counter.steps;
  counter.seconds += seconds;
  counter.sync_bytes_per_second = 1e9 * world().bandwidth(p, time_);
  done_ += input_.shares[static_cast<std::size_t>(p)];
}

void AdaptedReplicas::run_until(double time) {
  while (time_ < time) {
    if (input_.current.mode == shares::Mode::kExact) {
      exact_step();
    } else {
      partial_until(std::min(next_scrape_, time));
    }
    observe();
  }
}

void AdaptedReplicas::exact_step() {
  std::vector<int> all(input_.shares.size());
  std::iota(all.begin(), all.end(), 0);
  double slowest = 0;
  for (const int p : all) {
    const double seconds = step_seconds(p);
    slowest = std::max(slowest, seconds);
    count(p, seconds);
  }
  const double step = slowest + world().sync_seconds(all, time_ + slowest);
  time_ += step;
  recent_.push_back(step);
  if (recent_.size() > kOutcomeSteps) recent_.erase(recent_.begin());
  if (!pending_.empty() && ++pending_.front().steps == kOutcomeSteps) judge();
}

void AdaptedReplicas::observe() {
  for (; next_scrape_ <= time_; next_scrape_ += options_.scrape) {
    counters_.time = wall(time_);
    add_replica_scrapes(model_, {counters_});
  }
  for (; next_tick_ <= time_; next_tick_ += options_.tick) decide();
}

void AdaptedReplicas::decide() {
  if (!options_.adapt) return;
  input_.replicas = replica_estimates_of(model_, wall(time_), kStale);
  input_.moment.now = wall(time_);
  input_.moment.step = counters_.replicas.empty() ? 0 : counters_.replicas.begin()->second.steps;
  input_.step_seconds = recent_.empty() ? 0
                                        : std::accumulate(recent_.begin(), recent_.end(), 0.0) /
                                              static_cast<double>(recent_.size());
  input_.moment.unjudged = !pending_.empty();
  input_.retune.clock = {.last_change = last_retune_,
                         .cooldown = std::chrono::seconds(std::llround(options_.retune_cooldown))};
  input_.regroup.clock = {
      .last_change = last_regroup_,
      .cooldown = std::chrono::seconds(std::llround(options_.regroup_cooldown))};
  auto decided = shares::decide(input_, memory_);
  memory_ = std::move(decided.state);
  if (decided.decision.shares || decided.decision.policy) adopt(decided.decision);
}

void AdaptedReplicas::adopt(const shares::Decision& decision) {
  changes_.push_back("at " + std::to_string(time_) + ": " + decision.reason);
  forget_replicas(model_);
  if (decision.shares) {
    pending_ = {{.before = input_.shares,
                 .after = *decision.shares,
                 .seconds_before = input_.step_seconds,
                 .gain = decision.gain}};
    if (decision.returns_to_even || decision.policy) pending_.clear();
    input_.shares = *decision.shares;
    last_retune_ = wall(time_);
  }
  if (!decision.policy) return;
  input_.current = *decision.policy;
  last_regroup_ = wall(time_);
  recent_.clear();
  events_ = {};
  scheduler_.clear();
  if (input_.current.mode == shares::Mode::kExact) return;
  scheduler_.emplace_back(config(), 1);
  replicas_.assign(input_.shares.size(), {});
  for (int p = 0; p < static_cast<int>(replicas_.size()); ++p) begin(p);
}

void AdaptedReplicas::judge() {
  const Pending pending = std::exchange(pending_, {}).front();
  const double after =
      std::accumulate(recent_.begin(), recent_.end(), 0.0) / static_cast<double>(recent_.size());
  if (pending.seconds_before <= 0) return;
  const double saved = 1 - after / pending.seconds_before;
  options_.retune_cooldown = saved < saved_part(pending.gain) / 3
                                 ? std::min(3600.0, 2 * options_.retune_cooldown)
                                 : std::max(60.0, options_.retune_cooldown / 2);
  if (saved >= -gate::kSlower) return;
  const std::int64_t step = counters_.replicas.begin()->second.steps;
  memory_.shares.quarantine[joined(pending.after)] = step + gate::kQuarantineSteps;
  memory_.share_cost.current_shares = 0;
  input_.shares = pending.before;
  last_retune_ = wall(time_);
  forget_replicas(model_);
  changes_.push_back("at " + std::to_string(time_) + ": taken back");
}

groups::Config AdaptedReplicas::config() const {
  return {.settings = input_.current.groups,
          .shares = input_.shares,
          .stages = input_.stages,
          .places = {}};
}

void AdaptedReplicas::partial_until(double time) {
  while (!events_.empty() && events_.top().time <= time) {
    const Event event = events_.top();
    events_.pop();
    time_ = event.time;
    event.what();
  }
  time_ = time;
}

void AdaptedReplicas::begin(int p) {
  Replica& replica = replicas_[static_cast<std::size_t>(p)];
  replica.seconds = step_seconds(p);
  scheduler_.front().began(p, from_seconds(time_));
  at(time_ + replica.seconds, [this, p] { arrive(p); });
}

void AdaptedReplicas::arrive(int p) {
  Replica& replica = replicas_[static_cast<std::size_t>(p)];
  ++replica.steps;
  replica.progress += input_.shares[static_cast<std::size_t>(p)] /
                      static_cast<double>(UnevenReplicas::kMicroBatches);
  count(p, replica.seconds);
  take(scheduler_.front().arrived({.replica = p,
                                   .step = replica.steps,
                                   .progress = replica.progress,
                                   .step_seconds = replica.seconds,
                                   .received = std::exchange(replica.received, {})},
                                  from_seconds(time_)));
}

void AdaptedReplicas::take(const std::vector<groups::FormedGroup>& grants) {
  for (const groups::FormedGroup& grant : grants) {
    at(time_ + world().sync_seconds(grant.members, time_), [this, grant, began = time_] {
      for (const int p : grant.members) {
        Replica& replica = replicas_[static_cast<std::size_t>(p)];
        replica.progress = grant.progress;
        replica.received = world().received(p, grant.members, began);
        begin(p);
      }
    });
  }
  if (const auto timer = scheduler_.front().timer()) {
    at(std::max(time_, to_seconds(*timer)), [this, timer] {
      if (scheduler_.front().timer() == timer) take(scheduler_.front().tick(*timer));
    });
  }
}

}  // namespace weir::sim
