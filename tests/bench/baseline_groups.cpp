// SPDX-License-Identifier: Apache-2.0
// The baselines of E9 on real processes: takes the place of worker/groups/group_scheduler.cpp when
// baseline_worker is linked. With group_size_max = 2 first pairs (partial reduce: whoever is there
// first averages with the next), else SDPipe's own scheduler (its preduce_handler.cc): the first
// arrival opens a window of 0.01 to 10 ms, whoever comes within it is a group; each ten rounds the
// next group takes all in until nobody is unconnected. Its own scheduler per stage connects the
// stages one after the other, under a lock: here as many groups in a row. For the rest one decision
// for all stages, which does no harm. No deaths, no rejoins.
#include <algorithm>
#include <utility>

#include "worker/base/check.h"
#include "worker/base/units.h"
#include "worker/groups/group_scheduler.h"

namespace weir::groups {
namespace {

// Seconds that an arrival waits: half as long or twice the time next time.
constexpr double kFirstPatience = 0.001, kLeastPatience = 1e-5, kMostPatience = 0.010;
constexpr std::int64_t kConnectEvery = 10;  // rounds of all replicas

// What GroupScheduler has no field for. One coordinator is one process.
struct Baseline {
  std::vector<double> patience;
  std::int64_t accumulated = 0;
  int connections_due = 0;  // groups in a row, one for each stage
} baseline;                 // NOLINT: a program for measuring

}  // namespace

GroupScheduler::GroupScheduler(Config config, std::uint64_t seed, std::uint64_t last_round)
    : config_(std::move(config)),
      replicas_(config_.shares.size()),
      graph_(static_cast<int>(config_.shares.size())),
      estimate_(static_cast<int>(config_.shares.size()), seed),
      node_rates_(static_cast<int>(config_.shares.size())),
      distances_(static_cast<int>(config_.shares.size())),
      round_(last_round) {
  baseline = {.patience = std::vector<double>(replicas_.size(), kFirstPatience)};
}

void GroupScheduler::reconfigure(Config config, double) {
  config_ = std::move(config);
}

std::vector<FormedGroup> GroupScheduler::arrived(const Arrival& arrival, Time now) {
  Replica& replica = at(arrival.replica);
  if (replica.seen && arrival.step <= replica.steps) return {};
  replica.seen = true;
  replica.steps = arrival.step;
  replica.progress = arrival.progress;
  ready_.emplace(arrival.replica, now);
  return decide(now);
}

std::vector<FormedGroup> GroupScheduler::tick(Time now) {
  return decide(now);
}

std::vector<FormedGroup> GroupScheduler::decide(Time now) {
  std::vector<FormedGroup> grants;
  timer_.reset();
  if (ready_.empty()) return grants;
  std::vector<int> group;
  for (const auto& [p, arrival] : ready_) group.push_back(p);
  std::ranges::stable_sort(group, {}, [this](int p) { return ready_.at(p); });
  const bool pairs = config_.settings.group_size_max == 2 && !gathering_;
  const bool all = group.size() == replicas_.size();
  if (gathering_) {
    if (!all) return grants;
  } else if (pairs) {
    if (group.size() < 2) return grants;
    group.resize(2);
  } else if (baseline.connections_due > 0) {
    SyncGraph graph = graph_;
    for (const int p : group) graph.merge(group.front(), p);
    if (!graph.connected()) return grants;
  } else if (!all) {
    const auto first = static_cast<std::size_t>(group.front());
    const Time limit = ready_.at(group.front()) + from_seconds(baseline.patience[first]);
    if (now < limit) {
      timer_ = limit;
      return grants;
    }
  }
  commit({group}, baseline.connections_due > 0 ? Kind::kConnects : Kind::kUsual, grants);
  return grants;
}

void GroupScheduler::commit(const std::vector<std::vector<int>>& groups, Kind kind,
                            std::vector<FormedGroup>& grants) {
  const bool connect = kind == Kind::kConnects;
  std::vector<int> members = groups.front();
  std::ranges::sort(members);
  const double weight = 1 / static_cast<double>(members.size());
  FormedGroup grant{.round = ++round_,
                    .members = members,
                    .weights = std::vector(members.size(), weight),
                    .connects = connect,
                    .gathers = std::exchange(gathering_, false)};
  for (const int p : members) {
    grant.progress += weight * at(p).progress;
    grant.steps.push_back(at(p).steps);
    graph_.merge(members.front(), p);
    ready_.erase(p);
    double& patience = baseline.patience[static_cast<std::size_t>(p)];
    patience = members.size() < 2 ? std::min(2 * patience, kMostPatience)
                                  : std::max(0.9 * patience, kLeastPatience);
  }
  if (connect) {
    graph_.reset();
    --baseline.connections_due;
  }
  const auto count = static_cast<std::int64_t>(members.size());
  const std::int64_t window = kConnectEvery * static_cast<std::int64_t>(replicas_.size());
  const bool due = (baseline.accumulated + count) / window > baseline.accumulated / window;
  if (due && config_.settings.group_size_max != 2) baseline.connections_due = config_.stages;
  baseline.accumulated += count;
  for (const int p : members) at(p).progress = grant.progress;
  estimate_.mix(grant.members, grant.weights);
  grants.push_back(std::move(grant));
  std::int64_t most = 0;
  for (const Replica& replica : replicas_) most = std::max(most, replica.steps);
  if (most - estimate_begin_.value_or(0) >= kConnectEvery) {
    contracted_ = estimate_.end_window();
    estimate_begin_ = most;
  }
}

std::vector<FormedGroup> GroupScheduler::failed(std::uint64_t, int, Time) {
  return {};
}
std::vector<FormedGroup> GroupScheduler::died(int, Time) {
  return {};
}
void GroupScheduler::began(int, Time) {}

double GroupScheduler::median_seconds() const {
  return 0;
}

}  // namespace weir::groups
