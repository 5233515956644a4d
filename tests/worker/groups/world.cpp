// SPDX-License-Identifier: Apache-2.0
#include "tests/worker/groups/world.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/support/received_rates.h"

namespace weir::groups {
namespace {

constexpr double kDeadline = 10;   // of a round, seconds
constexpr double kDetection = 30;  // of a death outside of rounds
constexpr double kTiny = 1e-9;

}  // namespace

World::World(WorldOptions options, std::uint64_t seed)
    : options_(options),
      random_(seed),
      replicas_(static_cast<std::size_t>(options.replicas)),
      graph_(options.replicas),
      believed_(static_cast<std::size_t>(options.replicas)) {
  config_.settings = options.settings;
  config_.stages = 2;
  for (Replica& replica : replicas_) {
    replica.speed = random_.uniform() < 0.3 ? 1 + 3 * random_.uniform() : 1;
    config_.shares.push_back(options.uneven_shares ? 4 + static_cast<int>(random_.below(12)) : 8);
    config_.places.push_back(static_cast<int>(random_.below(3)));
  }
  scheduler_ = std::make_unique<GroupScheduler>(config_, seed);
}

void World::complain(const std::string& what) {
  broken_.push_back("at " + std::to_string(time_) + ": " + what);
}

void World::at(double delay, std::function<void()> what) {
  events_.push({time_ + delay, sequence_++, std::move(what)});
}

double World::share_ratio(int p) const {
  const double mean = std::accumulate(config_.shares.begin(), config_.shares.end(), 0.0) /
                      static_cast<double>(config_.shares.size());
  return config_.shares[static_cast<std::size_t>(p)] / mean;
}

void World::begin_step(int p) {
  Replica& replica = replicas_[static_cast<std::size_t>(p)];
  replica.state = State::kRunning;
  const double tail = random_.uniform() < 0.1 ? 1 + random_.exponential(2) : 1;
  const double seconds = replica.speed * share_ratio(p) * tail * (0.9 + 0.2 * random_.uniform());
  const std::uint64_t life = replica.life;
  at(0.005 * random_.uniform(), [this, p, life] {
    if (replicas_[static_cast<std::size_t>(p)].life == life) scheduler_->began(p, now());
  });
  at(seconds, [this, p, life] {
    if (replicas_[static_cast<std::size_t>(p)].life == life) end_step(p);
  });
}

void World::end_step(int p) {
  Replica& replica = replicas_[static_cast<std::size_t>(p)];
  ++replica.steps;
  replica.progress += share_ratio(p);
  replica.state = replica.open_round != 0 ? State::kInRound : State::kWaiting;
  if (replica.state == State::kWaiting) arrive(p);
}

Arrival World::arrival_of(int p) const {
  const Replica& replica = replicas_[static_cast<std::size_t>(p)];
  return {.replica = p,
          .step = replica.steps,
          .progress = replica.progress,
          .step_seconds = replica.speed * share_ratio(p),
          .received = replica.received,
          .average_seconds = replica.average_seconds,
          .last_round = replica.last_round};
}

void World::arrive(int p) {
  const std::uint64_t life = replicas_[static_cast<std::size_t>(p)].life;
  const Arrival arrival = arrival_of(p);
  at(0.01 * random_.uniform(), [this, p, life, arrival] {
    if (replicas_[static_cast<std::size_t>(p)].life != life) return;
    // Sometimes the message comes twice.
    const int times = random_.uniform() < 0.1 ? 2 : 1;
    for (int i = 0; i < times; ++i) {
      if (i == 0) believed_[static_cast<std::size_t>(p)] = arrival.progress;
      take(scheduler_->arrived(arrival, now()));
    }
  });
}

void World::take(const std::vector<FormedGroup>& grants) {
  for (const FormedGroup& grant : grants) {
    check_members(grant);
    for (const int p : grant.members) believed_[static_cast<std::size_t>(p)] = grant.progress;
  }
  check_clocks(grants);
  if (!grants.empty()) check_window(grants);
  for (const FormedGroup& grant : grants) {
    open_[grant.round] = {.grant = grant, .received = {}, .broken = false};
    for (const int p : grant.members) {
      const std::uint64_t life = replicas_[static_cast<std::size_t>(p)].life;
      if (replicas_[static_cast<std::size_t>(p)].state == State::kDead) continue;
      replicas_[static_cast<std::size_t>(p)].open_round = grant.round;
      at(0.01 * random_.uniform(), [this, p, grant, life, coordinator = coordinator_life_] {
        // A grant under way is lost when the coordinator dies.
        if (coordinator != coordinator_life_) return;
        if (replicas_[static_cast<std::size_t>(p)].life == life) receive(p, grant);
      });
    }
  }
  if (const auto factor = scheduler_->contraction()) {
    if (contractions_.empty() || contractions_.back() != *factor) contractions_.push_back(*factor);
  }
  arm_timer();
}

void World::arm_timer() {
  if (!scheduler_->timer()) return;
  const double delay = std::max(0.0, to_seconds(*scheduler_->timer()) - time_);
  const auto due = scheduler_->timer();
  at(delay, [this, due, coordinator = coordinator_life_] {
    if (coordinator == coordinator_life_ && scheduler_->timer() == due) {
      take(scheduler_->tick(now()));
    }
  });
}

void World::check_members(const FormedGroup& grant) {
  double sum = 0, shares = 0;
  for (const int p : grant.members) shares += config_.shares[static_cast<std::size_t>(p)];
  for (std::size_t i = 0; i < grant.members.size(); ++i) {
    const int p = grant.members[i];
    const std::string who = "replica " + std::to_string(p);
    const Replica& replica = replicas_[static_cast<std::size_t>(p)];
    sum += grant.weights[i];
    const double weight = config_.shares[static_cast<std::size_t>(p)] / shares;
    if (std::abs(grant.weights[i] - weight) > kTiny) complain("G4: weight of " + who);
    if (replica.state == State::kDead) continue;  // nobody has noticed
    if (replica.state != State::kWaiting) complain("G1, G2: " + who + " does not wait");
    if (replica.open_round != 0) complain("G1: " + who + " is in an open round");
    if (replica.steps != grant.steps[i]) complain("G2: step of " + who);
    if (replica.last_round >= grant.round) complain("G7: round " + std::to_string(grant.round));
  }
  if (std::abs(sum - 1) > kTiny) complain("G4: weights sum to " + std::to_string(sum));
  const auto most = static_cast<std::size_t>(config_.settings.group_size_max);
  if (!grant.connects && grant.members.size() > most) complain("group too large");
}

// G6, by the clocks as the coordinator has been told of them. After a restart it knows a clock from
// the first arrival on.
void World::check_clocks(const std::vector<FormedGroup>& grants) {
  if (restarted_) return;
  double slowest = std::numeric_limits<double>::infinity(), fastest = 0, step = 0;
  for (int q = 0; q < options_.replicas; ++q) {
    if (!scheduler_->living(q)) continue;
    slowest = std::min(slowest, believed_[static_cast<std::size_t>(q)]);
    fastest = std::max(fastest, believed_[static_cast<std::size_t>(q)]);
    step = std::max(step, share_ratio(q));
  }
  for (const FormedGroup& grant : grants) {
    if (grant.progress > slowest + config_.settings.max_staleness + kTiny) {
      complain("G6: " + std::to_string(grant.progress) + " against " + std::to_string(slowest));
    }
  }
  if (options_.deaths + options_.restarts == 0 &&
      fastest > slowest + config_.settings.max_staleness + step + kTiny) {
    complain("G6: clocks from " + std::to_string(slowest) + " to " + std::to_string(fastest));
  }
}

// All groups of one decision count before the window may end: the windows are the scheduler's then.
void World::check_window(const std::vector<FormedGroup>& grants) {
  std::int64_t most = 0;
  for (const FormedGroup& grant : grants) {
    for (std::size_t i = 0; i < grant.members.size(); ++i) {
      most = std::max(most, grant.steps[i]);
      if (graph_.living(grant.members[i]) && graph_.living(grant.members.front())) {
        graph_.merge(grant.members.front(), grant.members[i]);
      }
    }
  }
  const int b = config_.settings.connect_every;
  const std::int64_t bound = b + (options_.slow_link ? std::max(2, b / 2) : 0);
  // After a death or a return our windows need not begin when the scheduler's do.
  if (options_.deaths + options_.restarts == 0 && most - window_begin_ > bound) {
    complain("G5: " + std::to_string(most - window_begin_) + " steps without connection");
  }
  if (!graph_.connected()) return;
  graph_.reset();
  restarted_ = false;
  window_begin_ = 0;
  for (const Replica& replica : replicas_) {
    if (replica.state != State::kDead) window_begin_ = std::max(window_begin_, replica.steps);
  }
}

double World::average_seconds(const FormedGroup& grant) {
  if (grant.members.size() < 2) return 0;
  const bool slow = std::ranges::count(grant.members, 0) > 0;
  const double seconds = slow ? options_.slow_average_seconds : options_.average_seconds;
  return (seconds > 0 ? seconds : 0.1) * (0.5 + random_.uniform());
}

void World::receive(int p, const FormedGroup& grant) {
  Replica& replica = replicas_[static_cast<std::size_t>(p)];
  if (replica.last_round >= grant.round) return;  // repeated
  replica.last_round = grant.round;
  if (replica.state != State::kWaiting) return;
  replica.state = State::kInRound;
  Round& round = open_[grant.round];
  round.received.push_back(p);
  if (round.received.size() == grant.members.size()) {
    round.seconds = average_seconds(grant);
    at(round.seconds, [this, number = grant.round] { finish(number); });
  } else if (round.received.size() == 1) {
    // Who never hears of the round does not come.
    at(kDeadline, [this, number = grant.round, members = grant.members] {
      if (!open_.contains(number)) return;
      const auto& received = open_[number].received;
      const auto absent = std::ranges::find_if(
          members, [&](int q) { return std::ranges::count(received, q) == 0; });
      give_up(number, absent == members.end() ? -1 : *absent);
    });
  }
  if (grant.overlaps) {
    replica.progress = grant.progress;
    begin_step(p);
  }
}

void World::finish(std::uint64_t number) {
  const auto found = open_.find(number);
  if (found == open_.end() || found->second.broken) return;
  const Round round = found->second;
  open_.erase(found);
  for (const int p : round.grant.members) {
    Replica& replica = replicas_[static_cast<std::size_t>(p)];
    replica.open_round = 0;
    replica.received = test::received_rates(
        p, round.grant.members, [this](int q) { return options_.slow_link && q == 0 ? 1e8 : 1e9; });
    replica.average_seconds = options_.average_seconds > 0 ? round.seconds : 0;
    if (!round.grant.overlaps) {
      replica.progress = round.grant.progress;
      begin_step(p);
    } else if (replica.state == State::kInRound) {
      replica.state = State::kWaiting;
      arrive(p);
    }
  }
}

void World::give_up(std::uint64_t number, int missing) {
  const auto found = open_.find(number);
  if (found == open_.end()) return;
  const Round round = found->second;
  open_.erase(found);
  for (const int p : round.grant.members) {
    Replica& replica = replicas_[static_cast<std::size_t>(p)];
    if (replica.open_round != number) continue;
    replica.open_round = 0;
    const bool runs = replica.state == State::kRunning;  // tells it at the end of its step
    if (replica.state != State::kInRound && !(round.grant.overlaps && runs)) continue;
    at(0.01 * random_.uniform(), [this, p, number, missing, life = replica.life] {
      if (replicas_[static_cast<std::size_t>(p)].life != life) return;
      take(scheduler_->failed(number, missing, now()));
    });
    if (!round.grant.overlaps) {
      replica.progress = round.grant.progress;
      begin_step(p);
    } else if (!runs) {
      replica.state = State::kWaiting;
      arrive(p);
    }
  }
}

void World::kill() {
  std::vector<int> living;
  for (int p = 0; p < options_.replicas; ++p) {
    if (replicas_[static_cast<std::size_t>(p)].state != State::kDead) living.push_back(p);
  }
  if (living.size() < 2) return;
  const int p = living[random_.below(living.size())];
  Replica& replica = replicas_[static_cast<std::size_t>(p)];
  const std::uint64_t round = replica.open_round;
  replica.state = State::kDead;
  replica.open_round = 0;
  replica.life = ++lives_;
  if (round != 0 && open_.contains(round)) {
    open_[round].broken = true;
    at(kDeadline, [this, round, p] { give_up(round, p); });
  }
  at(kDetection, [this, p, life = replica.life] {
    if (replicas_[static_cast<std::size_t>(p)].life != life) return;
    graph_.remove(p);
    take(scheduler_->died(p, now()));
  });
  at(kDetection + 20 * random_.uniform(), [this, p] { revive(p); });
}

void World::revive(int p) {
  Replica& replica = replicas_[static_cast<std::size_t>(p)];
  const Replica* source = nullptr;
  for (const Replica& other : replicas_) {
    if (other.state == State::kRunning) source = &other;
  }
  if (source == nullptr) return at(0.5, [this, p] { revive(p); });
  replica.progress = believed_[static_cast<std::size_t>(p)] = source->progress;
  replica.life = ++lives_;
  graph_.add(p);
  scheduler_->joined(p, replica.progress);
  begin_step(p);
}

void World::restart_coordinator() {
  ++coordinator_life_;
  restarted_ = true;
  graph_.reset();
  // An incarnation has rounds of its own.
  scheduler_ =
      std::make_unique<GroupScheduler>(config_, coordinator_life_, coordinator_life_ << 32);
  for (int p = 0; p < options_.replicas; ++p) {
    Replica& replica = replicas_[static_cast<std::size_t>(p)];
    // The new one does not know of rounds that nobody has heard of.
    if (replica.state == State::kWaiting) {
      replica.open_round = 0;
      arrive(p);
    }
    if (replica.state == State::kDead) {
      graph_.remove(p);
      take(scheduler_->died(p, now()));
    }
  }
}

std::int64_t World::least_steps() const {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const Replica& replica : replicas_) {
    if (replica.state != State::kDead) least = std::min(least, replica.steps);
  }
  return least;
}

void World::run(std::int64_t steps) {
  for (int p = 0; p < options_.replicas; ++p) begin_step(p);
  for (int i = 0; i < options_.deaths; ++i) at(5 + 150 * random_.uniform(), [this] { kill(); });
  for (int i = 0; i < options_.restarts; ++i) {
    at(5 + 150 * random_.uniform(), [this] { restart_coordinator(); });
  }
  for (int handled = 0; least_steps() < steps && handled < 200'000; ++handled) {
    if (events_.empty()) return complain("nothing happens any more");
    const Event event = events_.top();
    events_.pop();
    time_ = event.time;
    event.what();
  }
  if (least_steps() < steps) complain("no progress");
}

}  // namespace weir::groups
