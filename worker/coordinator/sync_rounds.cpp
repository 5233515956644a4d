// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/sync_rounds.h"

#include <algorithm>
#include <utility>

namespace weir::coordinator {
namespace {

constexpr std::uint64_t kSeed = 1;          // for the vectors that measure contraction
constexpr double kWorstContraction = 0.5;   // worker/groups/README.md "Contraction"
constexpr double kLongestSeconds = 86'400;  // of a step; limit for the value in a message
constexpr double kLeastDeadline = 10;       // seconds; worker/coordinator/README.md "Sync rounds"
constexpr double kDeadlineSteps = 5;        // median steps

groups::Config config_of(const schedule::Plan& plan) {
  const schedule::SyncPolicy& sync = plan.sync;
  return {.settings = {.group_size_min = sync.group_size_min,
                       .group_size_max = sync.group_size_max,
                       .max_staleness = sync.max_staleness,
                       .grace_window_percent = sync.grace_window_percent,
                       .connect_every = sync.connect_every},
          .shares = plan.micro_batches,
          .stages = plan.stage_count(),
          .places = {}};
}

// A duration from a message; 0 = unknown.
double seconds_of(double claimed) {
  return claimed > 0 && claimed < kLongestSeconds ? claimed : 0;
}

groups::Time since_start(SteadyTime now) {
  return now.time_since_epoch();
}

}  // namespace

void SyncRounds::follow(const schedule::Plan* plan) {
  const bool begins = plan != nullptr && !trains_;
  trains_ = plan != nullptr;
  if (plan == nullptr) return;
  if (begins) {
    scheduler_.reset();
    replicas_.clear();
    granted_ = 0;
    reached_ = 0;
    meetings_ = {total_steps_};
  } else if (plan->revision == revision_) {
    return;
  }
  revision_ = plan->revision;
  if (schedule::averages(*plan)) begin(*plan);
}

void SyncRounds::begin(const schedule::Plan& plan) {
  plan_ = plan;
  if (scheduler_) {
    scheduler_->reconfigure(config_of(plan), 1);
    return;
  }
  scheduler_.emplace(config_of(plan), kSeed);
  replicas_.assign(plan.micro_batches.size(), {});
  granted_ = members_ = 0;
  reported_contraction_ = most_stale_ = 0;
  reported_failure_ = 0;
}

void SyncRounds::gather_at(std::int64_t step) {
  if (step > reached_) meetings_.insert(step);
}

void SyncRounds::came_to(std::int64_t step) {
  reached_ = std::max(reached_, step);
  meetings_.erase(meetings_.begin(), meetings_.upper_bound(reached_));
}

double SyncRounds::share_ratio(int replica) const {
  const auto total = static_cast<double>(plan_.step_micro_batches());
  return plan_.micro_batches[static_cast<std::size_t>(replica)] * plan_.replica_count() / total;
}

bool SyncRounds::runs(int index, int replica, int stage, const Members& members) const {
  const auto* member = members.find(index);
  return member != nullptr && std::ranges::any_of(plan_.ranks, [&](const auto& rank) {
           return rank.replica == replica && (stage < 0 || rank.stage == stage) &&
                  rank.pod == member->member.pod;
         });
}

SyncRounds::Effects SyncRounds::on_failed(int index, const protocol::RoundFailed& failed,
                                          const Members& members, SteadyTime now) {
  if (!scheduler_ || !runs(index, failed.replica, -1, members) || failed.round < 1) return {};
  const bool plausible = failed.missing >= -1 && failed.missing < plan_.replica_count() &&
                         failed.missing != failed.replica;
  const int missing = plausible ? failed.missing : -1;
  Effects effects =
      tell(scheduler_->failed(static_cast<std::uint64_t>(failed.round), missing, since_start(now)),
           members);
  if (failed.round > reported_failure_) {
    reported_failure_ = failed.round;
    effects.warnings.push_back("round " + std::to_string(failed.round) +
                               " came to nothing: replica " + std::to_string(failed.replica) +
                               " misses " + std::to_string(missing) + ": " + failed.reason);
  }
  return effects;
}

SyncRounds::Effects SyncRounds::without(const std::set<int>& replicas, const Members& members,
                                        SteadyTime now) {
  Effects effects;
  if (!scheduler_) return effects;
  for (const int p : replicas) {
    if (p >= plan_.replica_count() || std::exchange(at(p).gone, true)) continue;
    Effects more = tell(scheduler_->died(p, since_start(now)), members);
    effects.send.insert(effects.send.end(), more.send.begin(), more.send.end());
    effects.warnings.insert(effects.warnings.end(), more.warnings.begin(), more.warnings.end());
  }
  return effects;
}

SyncRounds::Effects SyncRounds::on_ready(int index, const protocol::SyncReady& ready,
                                         const Members& members, SteadyTime now) {
  if (!scheduler_) return {};
  const bool its_own = runs(index, ready.replica, plan_.stage_count() - 1, members);
  if (!its_own || at(ready.replica).gone || ready.step <= at(ready.replica).step) return {};
  came_to(ready.step - 1);
  Replica& replica = at(ready.replica);
  replica.step = ready.step;
  ++replica.local;
  replica.progress += share_ratio(ready.replica);
  if (!meetings_.empty() && ready.step >= *meetings_.begin()) scheduler_->gather();
  groups::Arrival arrival{.replica = ready.replica,
                          .step = replica.local,
                          .progress = replica.progress,
                          .step_seconds = seconds_of(ready.step_seconds),
                          .received = {},
                          .average_seconds = seconds_of(ready.average_seconds)};
  for (const auto& one : ready.received) {
    arrival.received.push_back({one.from, one.bytes_per_second});
  }
  return tell(scheduler_->arrived(arrival, since_start(now)), members);
}

void SyncRounds::on_status(const protocol::StageStatus& status, SteadyTime now) {
  came_to(status.step);
  const bool known = scheduler_ && status.stage == 0 && status.replica >= 0 &&
                     status.replica < plan_.replica_count();
  if (known) scheduler_->began(status.replica, since_start(now));
}

SyncRounds::Effects SyncRounds::tick(const Members& members, SteadyTime now) {
  if (!scheduler_ || !scheduler_->timer() || since_start(now) < *scheduler_->timer()) return {};
  return tell(scheduler_->tick(since_start(now)), members);
}

std::optional<SteadyTime> SyncRounds::timer() const {
  if (!scheduler_ || !scheduler_->timer()) return std::nullopt;
  return SteadyTime(*scheduler_->timer());
}

std::optional<protocol::SyncGroups> SyncRounds::totals() const {
  if (granted_ == 0) return std::nullopt;
  return protocol::SyncGroups{
      .rounds = granted_,
      .mean_group_size = static_cast<double>(members_) / static_cast<double>(granted_),
      .max_staleness = most_stale_};
}

SyncRounds::Effects SyncRounds::tell(const std::vector<groups::FormedGroup>& grants,
                                     const Members& members) {
  Effects effects;
  for (const groups::FormedGroup& grant : grants) {
    std::int64_t next = 0;
    for (const int p : grant.members) next = std::max(next, at(p).step);
    protocol::Grant message{.round = static_cast<std::int64_t>(grant.round),
                            .next_step = next,
                            .members = grant.members,
                            .weights = grant.weights,
                            .all = grant.gathers,
                            .overlaps = grant.overlaps,
                            .deadline_seconds = std::max(
                                kLeastDeadline, kDeadlineSteps * scheduler_->median_seconds())};
    for (const int p : grant.members) at(p).progress = grant.progress;
    double slowest = grant.progress;
    for (int p = 0; p < plan_.replica_count(); ++p) {
      if (scheduler_->living(p)) slowest = std::min(slowest, at(p).progress);
    }
    message.staleness = grant.progress - slowest;
    most_stale_ = std::max(most_stale_, message.staleness);
    ++granted_;
    members_ += static_cast<std::int64_t>(grant.members.size());
    for (const int p : grant.members) {
      message.step = std::exchange(at(p).step, next);
      message.node_bytes_per_second = scheduler_->node_rate(p);
      for (const auto& rank : plan_.ranks) {
        const auto* member = rank.replica == p ? members.by_pod(rank.pod) : nullptr;
        if (member != nullptr) effects.send.emplace_back(member->member.worker_index, message);
      }
    }
    came_to(next);
  }
  const double contraction = scheduler_->contraction().value_or(0);
  if (contraction > kWorstContraction && contraction != reported_contraction_) {
    effects.warnings.push_back("replicas drift apart: averages leave " +
                               std::to_string(contraction) + " of their distance in " +
                               std::to_string(plan_.sync.connect_every) + " steps");
  }
  reported_contraction_ = contraction;
  return effects;
}

}  // namespace weir::coordinator
