// SPDX-License-Identifier: Apache-2.0
// Training in SimulatedWorkers: steps of Exact and Partial, how long they take, what is counted.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "tests/sim/loop_workers.h"
#include "worker/base/check.h"
#include "worker/base/units.h"
#include "worker/schedule/simulator.h"

namespace weir::sim {
namespace {

constexpr double kSync = 0.04;                      // s, an average of many replicas on free nodes
constexpr double kJitter = 0.02;                    // lognormal, of each step
constexpr double kLayer = 0.0025, kOverhead = 0.5;  // s per sample; samples
constexpr double kBackward = 2;                     // times forward

// Of a micro-batch over a boundary.
double wire_bytes(const schedule::Plan& plan, int boundary, bool forward) {
  constexpr int kFloat = 4;
  const int samples = plan.schedule.micro_batch_size;
  const auto codec =
      schedule::codec_of(forward ? plan.codecs.forward : plan.codecs.backward, boundary);
  return static_cast<double>(schedule::wire_bytes(codec, samples * kOutputBytes, samples, kFloat));
}

int node_number(const std::string& node) {
  return std::stoi(node.substr(1)) - 1;  // "n1" is the first
}

}  // namespace

double SimulatedWorkers::node_share(const std::string& node, double time) const {
  return hazards_.node_share[static_cast<std::size_t>(node_number(node))].at(time);
}
double SimulatedWorkers::slow(const std::string& node, double time) const {
  return hazards_.slow[static_cast<std::size_t>(node_number(node))].at(time);
}

const schedule::RankPlace& SimulatedWorkers::rank(int replica, int stage) const {
  return places_.at({replica, stage});
}

double SimulatedWorkers::forward_seconds(const schedule::Plan& plan,
                                         const schedule::RankPlace& rank, double time) const {
  const auto& range = plan.stages[static_cast<std::size_t>(rank.stage)];
  return (range.last - range.first + 1) * kLayer * (plan.schedule.micro_batch_size + kOverhead) *
         slow(rank.node, time);
}

schedule::PipelineModel SimulatedWorkers::pipeline(const schedule::Plan& plan,
                                                   const std::vector<schedule::RankPlace>& ranks,
                                                   double time) const {
  schedule::PipelineModel model;
  for (const auto& rank : ranks) {
    const double forward = forward_seconds(plan, rank, time);
    model.stages.push_back({from_seconds(forward), from_seconds(kBackward * forward)});
  }
  for (std::size_t s = 0; s + 1 < ranks.size(); ++s) {
    const double share =
        std::min(node_share(ranks[s].node, time), node_share(ranks[s + 1].node, time));
    for (const bool forward : {true, false}) {
      const double transfer =
          wire_bytes(plan, static_cast<int>(s), forward) / (shape_.node_rate * share);
      (forward ? model.forward : model.backward)
          .push_back({.transfer = from_seconds(transfer), .latency = {}, .trace = {}});
    }
  }
  return model;
}

double SimulatedWorkers::step_during(const schedule::Plan& plan,
                                     const protocol::Segment& segment) const {
  double sum = 0;
  int steps = 0;
  for (const auto& [step, time] : begun_) {
    if (step < segment.first_step || step >= segment.first_step + segment.steps) continue;
    double slowest = 0;
    for (int p = 0; p < plan.replica_count(); ++p) {
      std::vector<schedule::RankPlace> ranks(plan.stages.size());
      for (const auto& rank : plan.ranks) {
        if (rank.replica == p) ranks[static_cast<std::size_t>(rank.stage)] = rank;
      }
      const auto timeline =
          schedule::simulate(plan.schedule, plan.micro_batches[static_cast<std::size_t>(p)],
                             pipeline(plan, ranks, time));
      if (timeline) slowest = std::max(slowest, to_seconds(timeline->step));
    }
    sum += slowest;
    ++steps;
  }
  return steps > 0 ? sum / steps : 0;
}

double SimulatedWorkers::sync_share(int p) const {
  double least = 1;
  for (int s = 0; s < plan_->stage_count(); ++s)
    least = std::min(least, node_share(rank(p, s).node));
  return least;
}

double SimulatedWorkers::sync_seconds(const std::vector<int>& replicas) const {
  const auto members = static_cast<double>(replicas.size());
  double least = 1;
  for (const int p : replicas) least = std::min(least, sync_share(p));
  return 2 * (members - 1) / members * kSync / least;
}

// The exact sums of all stages, after the last backward of stage 0: stage s has begun its own when
// it ended its last backward, before the stages in front of it. As workers do, each rank counts
// what came from the replicas behind it (worker/engine/statistics.h).
double SimulatedWorkers::sum_seconds() {
  const int replicas = plan_->replica_count();
  if (replicas == 1) return 0;
  constexpr double kBytesOfSum = 3;  // of a parameter's bytes: double out, float back
  constexpr int kNeighbours = 4;
  double longest = 0, before = 0;
  for (int s = 0; s < plan_->stage_count(); ++s) {
    const auto& range = plan_->stages[static_cast<std::size_t>(s)];
    const double bytes = kBytesOfSum * (replicas - 1) / replicas *
                         static_cast<double>(kParameterBytes) * (range.last - range.first + 1);
    double least = 1, backward = 0;
    for (int p = 0; p < replicas; ++p) {
      const double own = node_share(rank(p, s).node);
      least = std::min(least, own);
      backward = std::max(backward, kBackward * forward_seconds(*plan_, rank(p, s)));
      for (int i = 1; i <= kNeighbours && i < replicas; ++i) {
        const auto& from = rank((p + i) % replicas, s);
        auto& link =
            links_[{{p, s, estimator::Direction::kSync, from.replica}, from.node, rank(p, s).node}];
        link.bytes += bytes;
        link.busy += bytes / (shape_.node_rate * std::min(own, node_share(from.node)));
      }
    }
    longest = std::max(longest, bytes / (shape_.node_rate * least) - before);
    before += backward;
  }
  return longest;
}

// One replica by itself, and its counters.
double SimulatedWorkers::step_seconds(int p, const schedule::Plan& plan) {
  const int micro_batches = plan.micro_batches[static_cast<std::size_t>(p)];
  const int stages = plan.stage_count();
  std::vector<double> key{static_cast<double>(plan.revision), static_cast<double>(micro_batches)};
  std::vector<schedule::RankPlace> ranks;
  for (int s = 0; s < stages; ++s) ranks.push_back(rank(p, s));
  const schedule::PipelineModel model = pipeline(plan, ranks, agenda_.now());
  for (const auto& stage : model.stages) key.push_back(to_seconds(stage.forward));
  for (const auto& link : model.forward) key.push_back(to_seconds(link.transfer));
  const auto [known, fresh] = known_.try_emplace(key, 0.0);
  if (fresh) {
    const auto timeline = schedule::simulate(plan.schedule, micro_batches, model);
    WEIR_CHECK(timeline.has_value(), "plans of the operator are legal");
    known->second = to_seconds(timeline->step);
    for (std::size_t s = 0; s < timeline->peak_in_flight.size(); ++s) {  // I4
      if (timeline->peak_in_flight[s] > plan.schedule.caps[s]) wrong_.push_back("above the cap");
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
    using estimator::Direction;
    for (const auto& name : {LinkName{{p, s, Direction::kForward}, from, to},
                             LinkName{{p, s, Direction::kBackward}, to, from}}) {
      const bool forward = name.link.direction == Direction::kForward;
      const auto& sent = (forward ? model.forward : model.backward)[static_cast<std::size_t>(s)];
      if (to_seconds(sent.transfer) < shape_.one_piece) continue;
      links_[name].bytes += micro_batches * wire_bytes(plan, s, forward);
      links_[name].busy += micro_batches * to_seconds(sent.transfer);
    }
  }
  if (!schedule::averages(plan)) tell(p, plan, model);
  return known->second * std::exp(kJitter * random_.normal());
}

// STATUS of the ranks of a replica.
void SimulatedWorkers::tell(int p, const schedule::Plan& plan,
                            const schedule::PipelineModel& model) {
  const int micro_batches = plan.micro_batches[static_cast<std::size_t>(p)];
  const int stages = plan.stage_count();
  for (int s = 0; s < stages; ++s) {
    const auto& stage = model.stages[static_cast<std::size_t>(s)];
    protocol::StageStatus status{.epoch = plan.revision, .replica = p, .stage = s};
    status.forward_seconds = micro_batches * to_seconds(stage.forward);
    status.backward_seconds = micro_batches * to_seconds(stage.backward);
    if (shape_.tells_parts) {
      auto& parts = status.parts.emplace();
      using protocol::StepPart;
      parts.seconds[static_cast<std::size_t>(StepPart::kForward)] = status.forward_seconds;
      parts.seconds[static_cast<std::size_t>(StepPart::kBackward)] = status.backward_seconds;
    }
    const auto send = [&](bool forward, int boundary) {
      const auto& links = forward ? model.forward : model.backward;
      const double transfer = to_seconds(links[static_cast<std::size_t>(boundary)].transfer);
      const bool timed = transfer >= shape_.one_piece;
      const double noise = std::exp(shape_.rate_noise * timing_.normal());
      status.sent.push_back({.forward = forward,
                             .transfers = micro_batches + 1,  // with the header
                             .timed = timed ? micro_batches : 0,
                             .seconds = timed ? micro_batches * transfer * noise : 0,
                             .rtt_seconds = 1e-4});
    };
    if (s + 1 < stages) send(true, s);
    if (s > 0) send(false, s - 1);
    statuses_.push_back(std::move(status));
  }
}

void SimulatedWorkers::tell_step(double seconds) {
  for (protocol::StageStatus& status : statuses_) {
    status.step = step_;
    status.step_seconds = seconds;
    status.interrupted = first_step_;
    segments_.on_status(status);
  }
  first_step_ = false;
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
  partial_.stop();
  step_began_ = agenda_.now();
  while (!replica_counters_.empty() &&
         replica_counters_.rbegin()->first >= plan_->replica_count()) {
    replica_counters_.erase(std::prev(replica_counters_.end()));
  }
  newest_.assign(static_cast<std::size_t>(plan_->replica_count()), 0);
  segments_.follow(&*plan_, generations_);
  first_step_ = true;
  if (in_groups()) return begin_partial();
  begin_step();
}

void SimulatedWorkers::begin_step() {
  std::vector<int> all(static_cast<std::size_t>(plan_->replica_count()));
  std::iota(all.begin(), all.end(), 0);
  double slowest = 0;
  statuses_.clear();
  begun_[step_ + 1] = agenda_.now();
  if (begun_.size() > 2 * coordinator::kSegmentSteps) begun_.erase(begun_.begin());
  for (const int p : all) {
    const double seconds = step_seconds(p, *plan_);
    count_step(p, seconds);
    slowest = std::max(slowest, seconds);
  }
  later(slowest + sum_seconds(), &SimulatedWorkers::end_step);
}

void SimulatedWorkers::end_step() {
  const double seconds = agenda_.now() - step_began_;
  newest_.assign(static_cast<std::size_t>(plan_->replica_count()), seconds);
  add_work(global_batch());
  tell_step(seconds);
  partial_.exact_step(step_);
  if (committed_) return at_boundary();
  begin_step();
}

// ---- Partial ----

PartialReplicas::Job SimulatedWorkers::partial_job() {
  return {.step_seconds = [this](int p, const auto& plan) { return step_seconds(p, plan); },
          .average_seconds = [this](const auto& members) { return sync_seconds(members); },
          .node_rate = [this](int p) { return 1e9 * sync_share(p); },
          .stepped =
              [this](int p, const schedule::Plan& plan, double seconds) {
                count_step(p, seconds);
                replica_counters_[p].sync_bytes_per_second = partial_.node_rate(p);
                add_work(plan.micro_batches[static_cast<std::size_t>(p)] *
                         plan.schedule.micro_batch_size);
              },
          .met = [this](std::int64_t step) { met(step); },
          .adopted =
              [this] {
                applying_ = false;
                applied(plan_->revision);
              }};
}

void SimulatedWorkers::begin_partial() {
  partial_.train(*plan_, step_);
  save_later(step_ + kStepsAhead);
}

void SimulatedWorkers::save_later(std::int64_t soonest) {
  save_at_ = (soonest + kSaveEvery - 1) / kSaveEvery * kSaveEvery;
  partial_.meet_at(save_at_);
}

// All hold one model: here a checkpoint can be taken, a plan be changed.
void SimulatedWorkers::met(std::int64_t step) {
  step_ = step;
  if (step >= save_at_ && !(committed_ && !in_band(*committed_))) {  // else it is given up
    checkpoint_ = step;
    unsaved_ = 0;
    save_later(step + kStepsAhead);
  }
  if (committed_ && step >= due_) at_boundary();
}

}  // namespace weir::sim
