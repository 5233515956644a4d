// SPDX-License-Identifier: Apache-2.0
#include "worker/groups/group_scheduler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "worker/base/check.h"
#include "worker/base/units.h"
#include "worker/groups/staleness.h"

namespace weir::groups {
namespace {

// Constants of worker/groups/README.md "Gates" and "Averages beside a step".
constexpr double kSlowNode = 0.5;      // of the median bandwidth
constexpr double kForgetting = 0.5;    // moving average of T_p, as in the operator
constexpr double kLongAverage = 0.25;  // of a step
constexpr int kLeastAlone = 2;         // own steps of a replica on a slow node: max(2, 3B/10)

// The upper median: with two replicas, the faster link is the usual one.
double upper_median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

GroupScheduler::GroupScheduler(Config config, std::uint64_t seed, std::uint64_t last_round)
    : config_(std::move(config)),
      replicas_(config_.shares.size()),
      graph_(static_cast<int>(config_.shares.size())),
      estimate_(static_cast<int>(config_.shares.size()), seed),
      node_rates_(static_cast<int>(config_.shares.size())),
      distances_(static_cast<int>(config_.shares.size())),
      round_(last_round) {
  WEIR_CHECK(!replicas_.empty() && config_.stages >= 1, "a job has replicas and stages");
  WEIR_CHECK(config_.places.empty() || config_.places.size() == replicas_.size(),
             "a place for each replica");
}

void GroupScheduler::reconfigure(Config config, double time_ratio) {
  WEIR_CHECK(config.shares.size() == replicas_.size() && time_ratio > 0, "the same replicas");
  config_ = std::move(config);
  for (Replica& replica : replicas_) replica.seconds *= time_ratio;
}

std::vector<FormedGroup> GroupScheduler::arrived(const Arrival& arrival, Time now) {
  const Replica& known = at(arrival.replica);
  if (living(arrival.replica) && known.seen && arrival.step <= known.steps) return {};
  take(arrival, now);
  return decide(now);
}

std::vector<FormedGroup> GroupScheduler::failed(std::uint64_t round, int missing, Time now) {
  graph_.reset();
  // A replica that has arrived since, or has a later grant, is alive.
  const bool suspect = missing >= 0 && missing < count() && living(missing) && at(missing).grant &&
                       at(missing).grant->round == round;
  return suspect ? died(missing, now) : decide(now);
}

std::vector<FormedGroup> GroupScheduler::died(int replica, Time now) {
  graph_.remove(replica);
  estimate_.set_living(replica, false);
  ready_.erase(replica);
  at(replica) = {};
  node_rates_.forget(replica);
  // If the fastest replica is gone, the windows count from the remaining ones.
  if (window_begin_) window_begin_ = std::min(*window_begin_, most_steps());
  if (estimate_begin_) estimate_begin_ = std::min(*estimate_begin_, most_steps());
  return decide(now);
}

void GroupScheduler::joined(int replica, double progress) {
  at(replica) = {.progress = progress};
  clocks_known_ = true;
  ready_.erase(replica);
  graph_.add(replica);
  estimate_.set_living(replica, true);
  std::vector<int> others;
  for (int p = 0; p < count(); ++p) {
    if (living(p) && p != replica) others.push_back(p);
  }
  distances_.copied(replica, others);
}

void GroupScheduler::began(int replica, Time now) {
  if (living(replica) && !ready_.contains(replica)) at(replica).started = now;
}

std::vector<FormedGroup> GroupScheduler::tick(Time now) {
  return decide(now);
}

std::optional<FormedGroup> GroupScheduler::granted(int replica, std::int64_t step) const {
  const Replica& known = at(replica);
  if (!known.seen || known.steps != step) return std::nullopt;
  return known.grant;
}

void GroupScheduler::take(const Arrival& arrival, Time now) {
  const int p = arrival.replica;
  if (!living(p)) joined(p, arrival.progress);
  if (!std::exchange(clocks_known_, true)) {
    // The first arrival tells the clock: all others began where this replica began.
    for (Replica& other : replicas_) other.progress = arrival.progress - share_ratio(p);
  }
  Replica& replica = at(p);
  if (!replica.seen) {
    // It is unknown when the replica averaged last, so both windows begin with its first arrival.
    replica.seen = true;
    replica.last_mix = arrival.step - 1;
    window_begin_ = std::max(window_begin_.value_or(arrival.step - 1), arrival.step - 1);
    if (!estimate_begin_) estimate_begin_ = window_begin_;
  }
  replica.steps = arrival.step;
  distances_.stepped(p);
  replica.progress = arrival.progress;
  replica.started.reset();
  if (replica.grant) node_rates_.add(p, replica.grant->round, arrival.received);
  const bool averaged =
      replica.grant && replica.grant->members.size() > 1 && !replica.grant->gathers;
  if (averaged && arrival.average_seconds > 0) {
    const auto members = static_cast<double>(replica.grant->members.size());
    replica.state_seconds = arrival.average_seconds * members / (2 * (members - 1));
  }
  replica.grant.reset();
  if (arrival.step_seconds > 0) {
    const double seconds = arrival.step_seconds / time_factor(p);
    replica.seconds =
        replica.seconds > 0 ? replica.seconds + kForgetting * (seconds - replica.seconds) : seconds;
  }
  round_ = std::max(round_, arrival.last_round);
  ready_.try_emplace(p, now);
}

std::vector<FormedGroup> GroupScheduler::decide(Time now) {
  std::vector<FormedGroup> grants;
  timer_.reset();
  if (gathering_) {
    grant_all(grants);
    return grants;
  }
  std::set<int> slow = slow_nodes();
  std::erase_if(slow, [this](int p) { return !holds_up(p); });
  grant_slow_nodes(slow, grants);
  Ready ready = ready_;
  const bool connect = connecting();
  if (connect) {
    if (hold_for_connection()) return grants;
  } else {
    drop_stale(ready);
    if (ready.empty() || wait_for_partners(ready, now)) return grants;
    hold_partners(ready, slow, now);
  }
  commit(connect ? split(ready, static_cast<int>(ready.size())) : split_by_node(ready, slow),
         connect ? Kind::kConnects : Kind::kUsual, grants);
  return grants;
}

void GroupScheduler::grant_all(std::vector<FormedGroup>& grants) {
  if (ready_.empty() || static_cast<int>(ready_.size()) < living_count()) return;
  gathering_ = false;
  std::vector<int> all;
  for (const auto& [p, arrival] : ready_) all.push_back(p);
  commit({all}, Kind::kGathers, grants);
  WEIR_CHECK(grants.size() == 1, "nobody is left for whom all must wait");
}

std::set<int> GroupScheduler::slow_nodes() const {
  std::map<int, double> rates;
  std::vector<double> known;
  for (int p = 0; p < count(); ++p) {
    const double rate = living(p) ? node_rates_.of(p) : 0;
    if (rate <= 0) continue;
    rates.emplace(p, rate);
    known.push_back(rate);
  }
  const double usual = upper_median(std::move(known));
  std::set<int> slow;
  for (const auto& [p, rate] : rates) {
    if (rate < kSlowNode * usual) slow.insert(p);
  }
  return slow;
}

// Expected duration of an average with `members` members, scaled from the last average of the
// replica.
double GroupScheduler::average_seconds(int replica, std::size_t members) const {
  const auto m = static_cast<double>(members);
  return 2 * (m - 1) / m * at(replica).state_seconds;
}

// True if an average of the largest group size would take longer than a step and so could not be
// hidden beside it.
bool GroupScheduler::holds_up(int replica) const {
  const auto most = static_cast<std::size_t>(std::max(2, config_.settings.group_size_max));
  const double seconds = average_seconds(replica, most);
  return seconds <= 0 || seconds > median_seconds();
}

// Gate 0: a group is as fast as its slowest node, so a replica on a slow node averages only every
// 3B/10 steps.
void GroupScheduler::grant_slow_nodes(const std::set<int>& slow, std::vector<FormedGroup>& grants) {
  const int alone = std::max(kLeastAlone, config_.settings.connect_every * 3 / 10);
  const Ready arrivals = ready_;
  for (const auto& [p, arrival] : arrivals) {
    if (slow.contains(p) && at(p).steps - at(p).last_mix < alone)
      commit({{p}}, Kind::kUsual, grants);
  }
}

// Gate 1: the window is over and not all replicas are connected.
bool GroupScheduler::connecting() const {
  return window_begin_ && most_steps() - *window_begin_ >= config_.settings.connect_every &&
         !graph_.connected();
}

bool GroupScheduler::hold_for_connection() const {
  std::set<int> present;
  for (const auto& [p, arrival] : ready_) present.insert(graph_.component(p));
  return static_cast<int>(present.size()) < graph_.components();
}

// Gate 2: replicas that are too far ahead are held back.
void GroupScheduler::drop_stale(Ready& ready) const {
  const double slowest = slowest_elsewhere(ready_);
  std::erase_if(ready, [&](const auto& entry) {
    return at(entry.first).progress - slowest > config_.settings.max_staleness;
  });
}

Patience GroupScheduler::patience_of(const std::vector<int>& here) const {
  double seconds = median_seconds();
  for (const int p : here) seconds = std::max(seconds, at(p).seconds * time_factor(p));
  return {.step_seconds = seconds,
          .window_seconds = config_.settings.grace_window_percent / 100.0 * seconds};
}

// Gate 3: returns true and sets the timer while it is worth waiting for a replica.
bool GroupScheduler::wait_for_partners(const Ready& ready, Time now) {
  std::vector<int> here;
  for (const auto& [p, arrival] : ready) here.push_back(p);
  const Time first =
      std::ranges::min_element(ready, {}, [](auto& one) { return one.second; })->second;
  std::vector<Running> running;
  for (int q = 0; q < count(); ++q) {
    const bool in_round = at(q).seen && !at(q).started;
    if (!living(q) || ready_.contains(q) || in_round) continue;
    running.push_back({.due = due_of(q).value_or(first), .replica = q});
  }
  Patience patience = patience_of(here);
  if (static_cast<int>(here.size()) < config_.settings.group_size_min) patience.window_seconds *= 2;
  timer_ = wait_until(here, std::move(running), distances_, patience, now);
  return timer_.has_value();
}

// A replica on a slow node that is due soon needs a partner: one ready replica waits for it if
// waiting is not worth the time of all of them. Otherwise replicas on slow nodes would only meet
// each other. The waiting replica is removed from `ready` and the timer is set.
void GroupScheduler::hold_partners(Ready& ready, const std::set<int>& slow, Time now) {
  for (const int q : slow) {
    if (ready_.contains(q) || !at(q).started) continue;
    const auto partner = std::ranges::min_element(ready, {}, [&](const auto& one) {
      return std::pair(slow.contains(one.first), one.second);
    });
    if (ready.size() < 2 || slow.contains(partner->first)) return;
    const std::vector<int> here{partner->first};
    const auto until =
        wait_until(here, {{.due = *due_of(q), .replica = q}}, distances_, patience_of(here), now);
    if (!until) continue;
    ready.erase(partner);
    timer_ = std::min(timer_.value_or(*until), *until);
  }
}

// Expected end of the running step, if known.
std::optional<Time> GroupScheduler::due_of(int replica) const {
  const Replica& self = at(replica);
  if (!self.started) return std::nullopt;
  const double seconds = self.seconds > 0 ? self.seconds : median_seconds();
  return *self.started + from_seconds(seconds * time_factor(replica));
}

// Gate 4: a replica on a slow node averages with one other replica. No further replica waits for
// it, and in a pair its link carries least.
std::vector<std::vector<int>> GroupScheduler::split_by_node(const Ready& ready,
                                                            const std::set<int>& slow) const {
  Ready fast = ready;
  std::erase_if(fast, [&](const auto& entry) { return slow.contains(entry.first); });
  const int most = std::max(1, config_.settings.group_size_max);
  if (most < 2 || ready.size() > 2 * fast.size()) return split(ready, most);
  std::vector<std::vector<int>> pairs;
  for (const auto& [p, arrival] : ready) {
    if (!slow.contains(p)) continue;
    const auto stranger = std::ranges::find_if(fast, [&, own = graph_.component(p)](auto& entry) {
      return graph_.component(entry.first) != own;
    });
    const auto partner = stranger == fast.end() ? fast.begin() : stranger;
    pairs.push_back({p, partner->first});
    fast.erase(partner);
  }
  auto groups = split(fast, most);
  groups.insert(groups.end(), pairs.begin(), pairs.end());
  return groups;
}

// Deals replicas round-robin, sorted by component, so that each group mixes different components.
std::vector<std::vector<int>> GroupScheduler::split(const Ready& ready, int most) const {
  std::vector<int> sorted;
  for (const auto& [p, arrival] : ready) sorted.push_back(p);
  std::ranges::sort(sorted, {},
                    [&](int p) { return std::make_pair(graph_.component(p), ready.at(p)); });
  const auto size = static_cast<std::size_t>(most);
  std::vector<std::vector<int>> groups((sorted.size() + size - 1) / size);
  for (std::size_t i = 0; i < sorted.size(); ++i) groups[i % groups.size()].push_back(sorted[i]);
  return groups;
}

// Gate 5: a group that would be too far ahead of the slowest after its average is not formed yet.
// The clock of a slow replica may still be behind after an average with a faster one (G6).
void GroupScheduler::commit(const std::vector<std::vector<int>>& groups, Kind kind,
                            std::vector<FormedGroup>& grants) {
  std::vector<FormedGroup> wanted;
  std::vector<double> progress, others;
  std::set<int> together;
  for (const auto& group : groups) {
    wanted.push_back(form_group(group, kind));
    progress.push_back(wanted.back().progress);
    together.insert(group.begin(), group.end());
  }
  for (int p = 0; p < count(); ++p) {
    if (living(p) && !together.contains(p)) others.push_back(at(p).progress);
  }
  const auto free = may_go_on(progress, others, config_.settings.max_staleness);
  for (std::size_t g = 0; g < wanted.size(); ++g) {
    if (!free[g]) continue;
    wanted[g].round = ++round_;
    apply(wanted[g]);
    grants.push_back(std::move(wanted[g]));
  }
  if (graph_.connected()) {
    graph_.reset();
    window_begin_ = most_steps();
  }
  count_window();
}

FormedGroup GroupScheduler::form_group(std::vector<int> members, Kind kind) const {
  std::ranges::sort(members, {}, [&](int p) {
    return std::make_pair(config_.places.empty() ? 0 : config_.places[static_cast<std::size_t>(p)],
                          p);
  });
  FormedGroup grant{.members = std::move(members),
                    .connects = kind != Kind::kUsual,
                    .gathers = kind == Kind::kGathers};
  double shares = 0;
  for (const int p : grant.members) shares += config_.shares[static_cast<std::size_t>(p)];
  std::vector<double> progress;
  for (const int p : grant.members) {
    grant.weights.push_back(config_.shares[static_cast<std::size_t>(p)] / shares);
    grant.steps.push_back(at(p).steps);
    progress.push_back(at(p).progress);
  }
  grant.progress = mixed_progress(progress, grant.weights);
  double longest = 0;
  for (const int p : grant.members) {
    longest = std::max(longest, average_seconds(p, grant.members.size()));
  }
  grant.overlaps = !grant.gathers && longest > kLongAverage * median_seconds();
  return grant;
}

void GroupScheduler::apply(const FormedGroup& grant) {
  estimate_.mix(grant.members, grant.weights);
  distances_.mixed(grant.members, grant.weights);
  for (const int p : grant.members) {
    WEIR_CHECK(ready_.erase(p) == 1, "only who arrived is granted, and once");
    Replica& replica = at(p);
    replica.progress = grant.progress;
    if (grant.members.size() > 1) replica.last_mix = replica.steps;
    replica.grant = grant;
    graph_.merge(grant.members.front(), p);
  }
}

void GroupScheduler::count_window() {
  if (!estimate_begin_ || most_steps() - *estimate_begin_ < config_.settings.connect_every) return;
  contracted_ = estimate_.end_window();
  estimate_begin_ = most_steps();
}

int GroupScheduler::living_count() const {
  int living_ones = 0;
  for (int p = 0; p < count(); ++p) living_ones += living(p) ? 1 : 0;
  return living_ones;
}

std::int64_t GroupScheduler::most_steps() const {
  std::int64_t most = 0;
  for (int p = 0; p < count(); ++p) {
    if (living(p)) most = std::max(most, at(p).steps);
  }
  return most;
}

double GroupScheduler::mean_share() const {
  return std::accumulate(config_.shares.begin(), config_.shares.end(), 0.0) /
         static_cast<double>(config_.shares.size());
}

double GroupScheduler::share_ratio(int replica) const {
  return config_.shares[static_cast<std::size_t>(replica)] / mean_share();
}

double GroupScheduler::time_factor(int replica) const {
  const int fill = config_.stages - 1;
  return (config_.shares[static_cast<std::size_t>(replica)] + fill) / (mean_share() + fill);
}

double GroupScheduler::median_seconds() const {
  std::vector<double> known;
  for (int p = 0; p < count(); ++p) {
    if (living(p) && at(p).seconds > 0) known.push_back(at(p).seconds);
  }
  return upper_median(std::move(known));
}

double GroupScheduler::slowest_elsewhere(const Ready& ready) const {
  double slowest = std::numeric_limits<double>::infinity();
  for (int p = 0; p < count(); ++p) {
    if (living(p) && !ready.contains(p)) {
      slowest = std::min(slowest, at(p).progress);
    }
  }
  return slowest;
}

std::string key_of(std::span<const int> members) {
  std::vector<int> sorted(members.begin(), members.end());
  std::ranges::sort(sorted);
  std::string key;
  for (const int p : sorted) key += (key.empty() ? "" : "-") + std::to_string(p);
  return key;
}

}  // namespace weir::groups
