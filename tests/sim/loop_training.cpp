// SPDX-License-Identifier: Apache-2.0
// Training in SimulatedWorkers: steps of Exact and Partial, how long they take, what is counted.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "tests/sim/loop_workers.h"
#include "tests/support/received_rates.h"
#include "worker/base/check.h"
#include "worker/base/units.h"
#include "worker/schedule/simulator.h"

namespace weir::sim {
namespace {

constexpr double kSync = 0.04;    // s, all-reduce over many replicas with free ports
constexpr double kJitter = 0.02;  // lognormal, of each step
constexpr double kLayer = 0.0025, kOverhead = 0.5;  // s per sample; samples
constexpr double kBackward = 2;                     // times forward

int node_number(const std::string& node) {
  return std::stoi(node.substr(1)) - 1;  // "n1" is the first
}

groups::Config config_of(const schedule::Plan& plan) {
  groups::Config config;
  config.settings = {plan.sync.group_size_min, plan.sync.group_size_max, plan.sync.max_staleness,
                     plan.sync.grace_window_percent, plan.sync.connect_every};
  config.shares = plan.micro_batches;
  config.stages = plan.stage_count();
  return config;
}

}  // namespace

double SimulatedWorkers::port(const std::string& node) const {
  return hazards_.port[static_cast<std::size_t>(node_number(node))].at(agenda_.now());
}
double SimulatedWorkers::slow(const std::string& node) const {
  return hazards_.slow[static_cast<std::size_t>(node_number(node))].at(agenda_.now());
}

const schedule::RankPlace& SimulatedWorkers::rank(int replica, int stage) const {
  return places_.at({replica, stage});
}

double SimulatedWorkers::forward_seconds(const schedule::RankPlace& rank) const {
  const auto& range = plan_->stages[static_cast<std::size_t>(rank.stage)];
  return (range.last - range.first + 1) * kLayer * (plan_->schedule.micro_batch_size + kOverhead) *
         slow(rank.node);
}

double SimulatedWorkers::sync_share(int p) const {
  double least = 1;
  for (int s = 0; s < plan_->stage_count(); ++s) least = std::min(least, port(rank(p, s).node));
  return least;
}

double SimulatedWorkers::sync_seconds(const std::vector<int>& replicas) const {
  const auto members = static_cast<double>(replicas.size());
  double least = 1;
  for (const int p : replicas) least = std::min(least, sync_share(p));
  return 2 * (members - 1) / members * kSync / least;
}

// One replica by itself, and its counters.
double SimulatedWorkers::step_seconds(int p) {
  const int micro_batches = plan_->micro_batches[static_cast<std::size_t>(p)];
  const int stages = plan_->stage_count();
  const double bytes = static_cast<double>(kOutputBytes) * plan_->schedule.micro_batch_size;
  std::vector<double> key{static_cast<double>(micro_batches)};
  schedule::PipelineModel model;
  for (int s = 0; s < stages; ++s) {
    const double forward = forward_seconds(rank(p, s));
    model.stages.push_back({from_seconds(forward), from_seconds(kBackward * forward)});
    key.push_back(forward);
  }
  for (int s = 0; s + 1 < stages; ++s) {
    const double share = std::min(port(rank(p, s).node), port(rank(p, s + 1).node));
    const double transfer = bytes / (shape_.port_rate * share);
    model.forward.push_back({.transfer = from_seconds(transfer), .latency = {}, .trace = {}});
    key.push_back(transfer);
  }
  model.backward = model.forward;
  const auto [known, fresh] = known_.try_emplace(key, 0.0);
  if (fresh) {
    const auto timeline = schedule::simulate(plan_->schedule, micro_batches, model);
    WEIR_CHECK(timeline.has_value(), "plans of the operator are legal");
    known->second = to_seconds(timeline->step);
    for (std::size_t s = 0; s < timeline->peak_in_flight.size(); ++s) {  // I4
      if (timeline->peak_in_flight[s] > plan_->schedule.caps[s]) wrong_.push_back("above the cap");
    }
  }
  for (int s = 0; s < stages; ++s) {
    auto& op = ops_[{rank(p, s).pod, s}];
    op.count += micro_batches;
    op.forward += micro_batches * to_seconds(model.stages[static_cast<std::size_t>(s)].forward);
    op.backward += micro_batches * to_seconds(model.stages[static_cast<std::size_t>(s)].backward);
    if (s + 1 == stages) continue;
    const auto& from = rank(p, s).node;
    const auto& to = rank(p, s + 1).node;
    const double busy =
        micro_batches * to_seconds(model.forward[static_cast<std::size_t>(s)].transfer);
    using estimator::Direction;
    for (const auto& name : {LinkName{{p, s, Direction::kForward}, from, to},
                             LinkName{{p, s, Direction::kBackward}, to, from}}) {
      links_[name].bytes += micro_batches * bytes;
      links_[name].busy += busy;
    }
  }
  return known->second * std::exp(kJitter * random_.normal());
}

void SimulatedWorkers::count_step(int p, double seconds) {
  auto& counter = replica_counters_[p];
  ++counter.steps;
  counter.seconds += seconds;
  counter.sync_bytes_per_second = 1e9 * sync_share(p);
}

void SimulatedWorkers::later(double seconds, void (SimulatedWorkers::*what)()) {
  agenda_.after(seconds, [this, what, life = life_] {
    if (life == life_) (this->*what)();
  });
}

void SimulatedWorkers::go_on() {
  ++life_;
  step_began_ = agenda_.now();
  while (!replica_counters_.empty() &&
         replica_counters_.rbegin()->first >= plan_->replica_count()) {
    replica_counters_.erase(std::prev(replica_counters_.end()));
  }
  groups_.clear();
  newest_.assign(static_cast<std::size_t>(plan_->replica_count()), 0);
  if (plan_->sync.mode == schedule::SyncMode::kPartial) return begin_partial();
  begin_step();
}

void SimulatedWorkers::begin_step() {
  std::vector<int> all(static_cast<std::size_t>(plan_->replica_count()));
  std::iota(all.begin(), all.end(), 0);
  double slowest = 0;
  for (const int p : all) {
    const double seconds = step_seconds(p);
    count_step(p, seconds);
    slowest = std::max(slowest, seconds);
  }
  later(slowest + sync_seconds(all), &SimulatedWorkers::end_step);
}

void SimulatedWorkers::end_step() {
  newest_.assign(static_cast<std::size_t>(plan_->replica_count()), agenda_.now() - step_began_);
  add_work(std::accumulate(plan_->micro_batches.begin(), plan_->micro_batches.end(), 0));
  if (committed_) return at_boundary();
  begin_step();
}

// ---- Partial ----

void SimulatedWorkers::begin_partial() {
  groups_.emplace_back(config_of(*plan_), seed_, round_);
  replicas_.assign(static_cast<std::size_t>(plan_->replica_count()), {});
  for (int p = 0; p < plan_->replica_count(); ++p) begin_replica(p);
}

void SimulatedWorkers::begin_replica(int p) {
  Replica& replica = replicas_[static_cast<std::size_t>(p)];
  if (replica.began >= 0) newest_[static_cast<std::size_t>(p)] = agenda_.now() - replica.began;
  if (committed_) {
    replica.state = State::kStopped;
    const bool all_stand = std::ranges::none_of(replicas_, [](const Replica& one) {
      return one.state == State::kRuns || one.state == State::kMixes;
    });
    if (all_stand) at_boundary();
    return;
  }
  replica.state = State::kRuns;
  replica.began = agenda_.now();
  replica.seconds = step_seconds(p);
  groups_.front().began(p, from_seconds(agenda_.now()));
  agenda_.after(replica.seconds, [this, p, life = life_] {
    if (life == life_) end_replica(p);
  });
}

void SimulatedWorkers::end_replica(int p) {
  Replica& replica = replicas_[static_cast<std::size_t>(p)];
  const int share = plan_->micro_batches[static_cast<std::size_t>(p)];
  const double mean = static_cast<double>(std::accumulate(plan_->micro_batches.begin(),
                                                          plan_->micro_batches.end(), 0)) /
                      plan_->replica_count();
  ++replica.steps;
  replica.progress += share / mean;
  count_step(p, replica.seconds);
  add_work(share);
  if (committed_) return begin_replica(p);
  replica.state = State::kReady;
  take(groups_.front().arrived({.replica = p,
                                .step = replica.steps,
                                .progress = replica.progress,
                                .step_seconds = replica.seconds,
                                .received = std::exchange(replica.received, {}),
                                .last_round = round_},
                               from_seconds(agenda_.now())));
}

void SimulatedWorkers::take(const std::vector<groups::Grant>& grants) {
  for (const groups::Grant& grant : grants) {
    check(grant);
    for (const int p : grant.members) {
      replicas_[static_cast<std::size_t>(p)].state = State::kMixes;
      replicas_[static_cast<std::size_t>(p)].progress = grant.progress;
    }
    agenda_.after(sync_seconds(grant.members), [this, grant, life = life_] {
      // The last one to stop may bring the next plan.
      for (const int p : grant.members) {
        if (life != life_) continue;
        replicas_[static_cast<std::size_t>(p)].received =
            test::received_rates(p, grant.members, [this](int q) { return 1e9 * sync_share(q); });
        begin_replica(p);
      }
    });
  }
  if (const auto timer = groups_.front().timer()) {
    agenda_.at(to_seconds(*timer), [this, timer, life = life_] {
      if (life != life_ || committed_ || groups_.empty()) return;
      if (groups_.front().timer() == timer) take(groups_.front().tick(*timer));
    });
  }
}

// G1, G2, G4, G6, G7 of scheduling.md 7.3.
void SimulatedWorkers::check(const groups::Grant& grant) {
  const auto fail = [&](const std::string& what) {
    wrong_.push_back("round " + std::to_string(grant.round) + ": " + what);
  };
  if (grant.round <= round_) fail("rounds do not grow");
  round_ = grant.round;
  std::set<int> members;
  double weights = 0;
  for (std::size_t i = 0; i < grant.members.size(); ++i) {
    const auto& replica = replicas_[static_cast<std::size_t>(grant.members[i])];
    if (replica.state != State::kReady) fail("a member is in another round, or has not arrived");
    if (!members.insert(grant.members[i]).second) fail("a member twice");
    weights += grant.weights[i];
  }
  if (std::abs(weights - 1) > 1e-9) fail("weights do not add up to 1");
  double least = grant.progress;
  for (const auto& replica : replicas_) least = std::min(least, replica.progress);
  const int most = *std::ranges::max_element(plan_->micro_batches);
  const double mean = static_cast<double>(std::accumulate(plan_->micro_batches.begin(),
                                                          plan_->micro_batches.end(), 0)) /
                      plan_->replica_count();
  if (grant.progress - least > plan_->sync.max_staleness + most / mean + 1e-9)
    fail("too far ahead");
}

}  // namespace weir::sim
