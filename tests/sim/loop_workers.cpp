// SPDX-License-Identifier: Apache-2.0
// Plans: joined, offered, refused, switched, broken off. Training: loop_training.cpp.
#include "tests/sim/loop_workers.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace weir::sim {
namespace {

constexpr double kMostPrepare = 0.5;                    // s, from PREPARE to the last READY
constexpr double kLoad = 15;                            // s, of a checkpoint, with new connections
constexpr double kConnect = 1;                          // s, of a move besides its transfer
constexpr double kRejoin = 1.5;                         // s, back-off of the first rejoin
constexpr double kGather = 1;                           // s, between two looks for missing pods
constexpr double kRefusals = 0.03, kBrokenMoves = 0.1;  // part of the plans
constexpr std::int64_t kSaveEvery = 50;                 // steps
constexpr int kStateFactor = 3;                         // parameters and two moments

bool waits_for_pods(const schedule::Plan& plan) {
  return plan.trigger == schedule::Trigger::kInitial || plan.trigger == schedule::Trigger::kRestart;
}

}  // namespace

std::string profile_json(const JobShape& shape) {
  std::string nodes;
  for (int i = 0; i < shape.layers; ++i) {
    std::string times;
    for (const int samples : {1, 2, 4, 8, 16}) {
      const double forward = 0.0025 * (samples + 0.5);
      times += std::string(times.empty() ? "" : ",") + R"({"samples":)" + std::to_string(samples) +
               R"(,"forward":)" + std::to_string(forward) + R"(,"backward":)" +
               std::to_string(2 * forward) + "}";
    }
    nodes += std::string(i == 0 ? "" : ",") + R"({"id":"l)" + std::to_string(i) +
             R"(","parameterBytes":)" + std::to_string(kParameterBytes) +
             R"(,"outputBytesPerSample":)" + std::to_string(kOutputBytes) +
             R"(,"stashBytesPerSample":)" + std::to_string(kStashBytes) + R"(,"times":{"A":[)" +
             times + "]}}";
  }
  return R"({"apiVersion":"weir.dev/profile/v1","model":"m","digest":"sha256:0","nodes":[)" +
         nodes + "]}";
}

SimulatedWorkers::SimulatedWorkers(Agenda& agenda, const Hazards& hazards, JobShape shape,
                                   std::uint64_t seed)
    : agenda_(agenda), hazards_(hazards), shape_(shape), seed_(seed), random_(seed) {}

void SimulatedWorkers::join(const Process& process) {
  processes_[process.worker] = process;
  told_();
}

bool SimulatedWorkers::live(const schedule::RankPlace& rank) const {
  return std::ranges::any_of(processes_,
                             [&](const auto& entry) { return entry.second.uid == rank.pod_uid; });
}

void SimulatedWorkers::end(const std::string& uid, bool by_nature) {
  const auto found =
      std::ranges::find_if(processes_, [&](const auto& entry) { return entry.second.uid == uid; });
  if (found == processes_.end()) return;
  const bool coordinator = found->first == 0;
  processes_.erase(found);
  const auto uses = [&](const std::optional<schedule::Plan>& plan) {
    return plan && !std::ranges::all_of(plan->ranks, [&](const auto& one) { return live(one); });
  };
  const bool breaks = coordinator || uses(plan_) || (loading_ && uses(committed_));
  if (breaks && (training_ || loading_)) {
    excused_ = by_nature;
    break_generation();
  }
  if (coordinator) {
    highest_ = applied_ = 0;
    last_switch_.reset();
    committed_.reset();
    next_.reset();
  }
  told_();
}

void SimulatedWorkers::break_generation() {
  training_ = false;
  broken_ = true;
  ++life_;
  const bool switching = committed_ || loading_;
  loading_ = false;
  const auto lost = std::exchange(committed_, std::nullopt);
  if (switching && lost) finish(lost->revision, protocol::Outcome::kAborted, "a rank is lost");
  if (next_) begin(*std::exchange(next_, std::nullopt));
}

void SimulatedWorkers::offer(const schedule::Plan& plan) {
  if (!has_coordinator() || plan.revision <= highest_) return;
  highest_ = plan.revision;
  if (committed_ || loading_) {
    next_ = plan;
    return;
  }
  begin(plan);
}

void SimulatedWorkers::begin(const schedule::Plan& plan) {
  agenda_.after(0.05 + (kMostPrepare - 0.05) * random_.uniform(), [this, plan] {
    if (plan.revision == highest_ && !committed_ && !loading_) prepared(plan);
  });
}

void SimulatedWorkers::prepared(const schedule::Plan& plan) {
  using schedule::StateMove;
  using schedule::Trigger;
  const bool complete = std::ranges::all_of(plan.ranks, [&](const auto& one) { return live(one); });
  if (!complete && waits_for_pods(plan)) {
    agenda_.after(kGather, [this, plan] {
      if (plan.revision == highest_ && !committed_ && !loading_) prepared(plan);
    });
    return;
  }
  Random chance(mix_seed(seed_, plan.revision));
  const bool refuses = !waits_for_pods(plan) && chance.uniform() < kRefusals;
  // A coordinator that is new to the ranks has no generation to move from: they load the
  // checkpoint.
  const bool moves = plan.state == StateMove::kMove && applied_ > 0;
  if (!complete || refuses || (moves && (broken_ || !plan_))) {
    const std::string why = !complete ? "a pod is not connected"
                            : refuses ? "no memory"
                                      : "state Move: broken";
    finish(plan.revision, protocol::Outcome::kRefused, why);
    return;
  }
  committed_ = plan;
  if (!training_) at_boundary();
}

// No step runs: the committed plan's time has come.
void SimulatedWorkers::at_boundary() {
  schedule::Plan plan = *committed_;
  if (!broken_ && plan_ && schedule::same_generation(*plan_, plan)) {
    committed_.reset();
    plan_ = plan;
    known_.clear();
    recent_.clear();
    applied_ = plan.revision;
    finish(plan.revision, protocol::Outcome::kApplied, "");
    if (next_) begin(*std::exchange(next_, std::nullopt));
    return go_on();
  }
  load(std::move(plan));
}

void SimulatedWorkers::load(schedule::Plan plan) {
  training_ = false;
  loading_ = true;
  ++life_;
  const bool moves = plan.state == schedule::StateMove::kMove && !broken_;
  if (!moves) return load_checkpoint(plan, kLoad, kLoad);
  std::map<std::string, double> seconds;  // by node that receives
  std::int64_t bytes = 0;
  for (const auto& to : plan.ranks) {
    const auto& range = plan.stages[static_cast<std::size_t>(to.stage)];
    const auto held = std::ranges::find(plan_->ranks, to.pod_uid, &schedule::RankPlace::pod_uid);
    for (int layer = range.first; layer <= range.last; ++layer) {
      if (held != plan_->ranks.end()) {
        const auto& own = plan_->stages[static_cast<std::size_t>(held->stage)];
        if (own.first <= layer && layer <= own.last) continue;
      }
      bytes += kStateFactor * kParameterBytes;
      seconds[to.node] +=
          kStateFactor * kParameterBytes / (shape_.port_rate * std::max(0.01, port(to.node)));
    }
  }
  double most = 0;
  for (const auto& [node, one] : seconds) most = std::max(most, one);
  const double pause = kConnect + most;
  Random chance(mix_seed(seed_ + 1, plan.revision));
  const bool breaks = chance.uniform() < kBrokenMoves;
  agenda_.after(pause, [this, plan, pause, bytes, breaks, life = life_] {
    if (life != life_) return;
    if (breaks) {  // after COMMIT there is no way back: the checkpoint, with the new plan
      finish(plan.revision, protocol::Outcome::kAborted, "a transfer broke off");
      // A connection that breaks is a hazard, too, which the job that does nothing does not meet.
      excused_ = true;
      work_ += (kRejoin + kLoad) * usual_rate_;
      return load_checkpoint(plan, kRejoin + kLoad, kRejoin + kLoad);
    }
    loaded(plan, pause, bytes);
  });
}

void SimulatedWorkers::load_checkpoint(const schedule::Plan& plan, double after, double pause) {
  agenda_.after(after, [this, plan, pause, life = life_] {
    if (life != life_) return;
    take_checkpoint_step();
    loaded(plan, pause);
  });
}

void SimulatedWorkers::take_checkpoint_step() {
  const std::int64_t from = std::max<std::int64_t>(0, checkpoint_);
  if (from > step_) wrong_.push_back("a checkpoint of steps that were never done");
  if (!excused_) work_ -= static_cast<double>(step_ - from) * global_batch();
  step_ = from;
}

void SimulatedWorkers::loaded(const schedule::Plan& plan, double pause, std::int64_t moved) {
  loading_ = broken_ = excused_ = false;
  training_ = true;
  committed_.reset();
  plan_ = plan;
  places_.clear();
  for (const auto& one : plan.ranks) places_[{one.replica, one.stage}] = one;
  known_.clear();
  recent_.clear();
  rest_ = 0;
  applied_ = plan.revision;
  finish(plan.revision, protocol::Outcome::kApplied, "", pause, moved);
  go_on();
  if (next_) begin(*std::exchange(next_, std::nullopt));
}

void SimulatedWorkers::finish(std::uint32_t revision, protocol::Outcome outcome,
                              const std::string& reason, double pause, std::int64_t moved) {
  last_switch_ = protocol::LastSwitch{revision, outcome, step_, pause, reason, moved};
  told_();
}

protocol::Register SimulatedWorkers::registration() const {
  protocol::Register out;
  out.job_uid = "job-uid";
  out.model = {"m", shape_.layers, "sha256:0"};
  out.profile_json = profile_json(shape_);
  out.last_checkpoint_step = checkpoint_;
  const Process* before = nullptr;
  for (const auto& [worker, process] : processes_) {
    protocol::Member member;
    member.pod = process.pod;
    member.pod_uid = process.uid;
    member.worker_index = worker;
    member.ips = {"10.0.0." + std::to_string(worker + 1)};
    member.node = process.node;
    member.ranks = {{"A", shape_.memory_bytes}};
    out.members.push_back(member);
    if (before != nullptr) {  // what the probe at the start finds
      const double rate = shape_.port_rate * std::min(port(before->node), port(process.node));
      out.links.push_back({before->node, process.node, rate, 1e-4});
      out.links.push_back({process.node, before->node, rate, 1e-4});
    }
    before = &process;
  }
  return out;
}

protocol::Report SimulatedWorkers::report() const {
  protocol::Report out;
  out.job_uid = "job-uid";
  out.plan_revision = applied_;
  out.last_switch = last_switch_;
  out.step = step_;
  out.total_steps = 1'000'000;
  out.last_checkpoint_step = checkpoint_;
  const double seconds = std::accumulate(recent_.begin(), recent_.end(), 0.0);
  if (seconds > 0) {
    out.samples_per_second = static_cast<double>(recent_.size()) * global_batch() / seconds;
  }
  for (const auto& [worker, process] : processes_) {
    protocol::MemberReport member;
    member.pod = process.pod;
    member.pod_uid = process.uid;
    member.ready = true;
    member.step_seconds = newest_step(process.uid);
    out.members.push_back(member);
  }
  return out;
}

// Of the replica whose first stage this pod is; others are not asked for it.
double SimulatedWorkers::newest_step(const std::string& uid) const {
  if (!plan_ || !training_) return 0;
  const auto first = std::ranges::find_if(
      plan_->ranks, [&](const auto& one) { return one.stage == 0 && one.pod_uid == uid; });
  if (first == plan_->ranks.end()) return 0;
  const auto p = static_cast<std::size_t>(first->replica);
  return p < newest_.size() ? newest_[p] : 0;
}

void SimulatedWorkers::add_work(int micro_batches) {
  constexpr std::size_t kRecent = 10;  // the coordinator's window
  work_ += micro_batches * plan_->schedule.micro_batch_size;
  rest_ += micro_batches * plan_->schedule.micro_batch_size;
  last_trained_ = agenda_.now();
  if (rest_ < global_batch()) return;
  rest_ -= global_batch();
  usual_rate_ = global_batch() / (agenda_.now() - step_began_);
  ++step_;
  recent_.push_back(agenda_.now() - step_began_);
  if (recent_.size() > kRecent) recent_.pop_front();
  step_began_ = agenda_.now();
  if (step_ % kSaveEvery == 0) checkpoint_ = step_;
}

}  // namespace weir::sim
