// SPDX-License-Identifier: Apache-2.0
// Plans: joined, offered, refused, switched, broken off. Training: loop_training.cpp.
#include "tests/sim/loop_workers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

namespace weir::sim {
namespace {

constexpr double kMostPrepare = 0.5;                    // s, from PREPARE to the last READY
constexpr double kLoad = 15;                            // s, of a checkpoint, with new connections
constexpr double kConnect = 1;                          // s, of a move besides its transfer
constexpr double kRejoin = 1.5;                         // s, back-off of the first rejoin
constexpr double kGather = 1;                           // s, between two looks for missing pods
constexpr double kRefusals = 0.03, kBrokenMoves = 0.1;  // part of the plans
constexpr double kCommitSeconds = 0.2;                  // worker/coordinator/plan_state.cpp
constexpr int kStateFactor = 3;                         // parameters and two moments

// Does what a step computes depend on which of the two is in force
// (worker/coordinator/plan_switch.cpp)?
bool same_step(const schedule::Plan& a, const schedule::Plan& b) {
  return a.micro_batches == b.micro_batches && a.sync.mode == b.sync.mode &&
         a.schedule.micro_batch_size == b.schedule.micro_batch_size;
}

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
    : agenda_(agenda),
      hazards_(hazards),
      shape_(shape),
      seed_(seed),
      random_(seed),
      partial_(agenda, partial_job()),
      timing_(mix_seed(seed, "timing")) {}

void SimulatedWorkers::join(const Process& process) {
  processes_[process.worker] = process;
  if (probed_.empty() && highest_ == 0 &&
      std::ssize(processes_) == shape_.workers * shape_.replicas)
    probe();
  tell_members();
  told_();
}

void SimulatedWorkers::tell_members() {
  coordinator::Members members;
  control::SessionId session = 0;
  for (const auto& [worker, process] : processes_) {
    protocol::Hello hello;
    hello.member.pod = process.pod;
    hello.member.pod_uid = process.uid;
    hello.member.worker_index = worker;
    members.hello(++session, hello, SteadyTime{});
  }
  partial_.set_members(std::move(members));
}

std::vector<std::string> SimulatedWorkers::wrong() {
  auto wrong = wrong_;
  const auto more = partial_.take_wrong();
  wrong.insert(wrong.end(), more.begin(), more.end());
  return wrong;
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
  tell_members();
  if (in_groups() && !coordinator) {
    const auto rank = std::ranges::find(plan_->ranks, uid, &schedule::RankPlace::pod_uid);
    const bool of_next =
        committed_ && !in_band(*committed_) &&
        !std::ranges::all_of(committed_->ranks, [&](const auto& one) { return live(one); });
    const bool its_own = rank != plan_->ranks.end() && !partial_.lost().contains(rank->replica);
    if (!of_next && (!its_own || goes_on_without(*rank, by_nature))) return told_();
    excused_ = by_nature;
    break_generation();
    return told_();
  }
  const auto uses = [&](const std::optional<schedule::Plan>& plan) {
    return plan && !std::ranges::all_of(plan->ranks, [&](const auto& one) { return live(one); });
  };
  const bool breaks = coordinator || uses(plan_) || (loading_ && uses(committed_));
  if (breaks && (training_ || loading_)) {
    excused_ = by_nature;
    break_generation();
  }
  if (coordinator) {
    segments_ = {};
    highest_ = applied_ = 0;
    last_switch_.reset();
    committed_.reset();
    next_.reset();
  }
  told_();
}

// Replicas that average go on without the one that has lost a rank (PlanSwitch::lose_replica).
// False: all are needed.
bool SimulatedWorkers::goes_on_without(const schedule::RankPlace& rank, bool by_nature) {
  if (committed_ && !(in_band(*committed_) && schedule::averages(*committed_))) return false;
  const double apart = partial_.apart(rank.replica);
  const std::int64_t highest = std::max(partial_.highest_step(), save_at_);
  if (!partial_.lose(rank.replica)) return false;
  if (!by_nature) work_ -= apart;
  partial_.forget_rates();
  // Layers that it was to save: the others save them, at a later step.
  save_at_ = highest + kStepsAhead;
  partial_.meet_at(save_at_);
  return true;
}

void SimulatedWorkers::break_generation() {
  step_ = step();
  training_ = false;
  broken_ = true;
  ++life_;
  partial_.end_generation();
  committed_at_.reset();
  if (std::exchange(applying_, false)) {
    finish(plan_->revision, protocol::Outcome::kAborted, "a rank is lost");
  }
  const bool switching = committed_ || loading_;
  loading_ = false;
  const auto lost = std::exchange(committed_, std::nullopt);
  if (switching && lost) finish(lost->revision, protocol::Outcome::kAborted, "a rank is lost");
  if (next_) begin(*std::exchange(next_, std::nullopt));
}

void SimulatedWorkers::offer(const schedule::Plan& plan) {
  if (!has_coordinator() || plan.revision <= highest_) return;
  highest_ = plan.revision;
  if (committed_ || loading_ || applying_) {
    next_ = plan;
    return;
  }
  begin(plan);
}

void SimulatedWorkers::begin(const schedule::Plan& plan) {
  agenda_.after(0.05 + (kMostPrepare - 0.05) * random_.uniform(), [this, plan] {
    if (plan.revision == highest_ && !committed_ && !loading_ && !applying_) prepared(plan);
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
  if (!training_) return at_boundary();
  if (in_groups()) commit_partial();
}

bool SimulatedWorkers::in_band(const schedule::Plan& plan) const {
  return partial_.lost().empty() && schedule::same_generation(*plan_, plan);
}

// As PlanSwitch::commit does it: where M, mb or the mode change, or a generation ends, all meet;
// else each replica takes the plan before its next step.
void SimulatedWorkers::commit_partial() {
  // The replicas that train hold all there is, whatever the plan knows of it.
  if (!partial_.lost().empty()) committed_->state = schedule::StateMove::kMove;
  if (in_band(*committed_) && same_step(*plan_, *committed_)) {
    plan_ = *std::exchange(committed_, std::nullopt);
    applying_ = true;
    return partial_.adopt(*plan_);
  }
  due_ = partial_.highest_step() + kStepsAhead;
  if (committed_->state == schedule::StateMove::kMove && partial_.shortest_step() > 0) {
    due_ += static_cast<std::int64_t>(std::ceil(kCommitSeconds / partial_.shortest_step()));
  }
  partial_.meet_at(due_);
  if (in_band(*committed_)) return;
  partial_.generation_ends();
  committed_at_ = agenda_.now();
}

// No step runs: the committed plan's time has come.
void SimulatedWorkers::at_boundary() {
  schedule::Plan plan = *committed_;
  if (!broken_ && plan_ && in_band(plan)) {
    committed_.reset();
    plan_ = plan;
    partial_.follow(plan);
    applied(plan.revision);
    return go_on();
  }
  load(std::move(plan));
}

// In band.
void SimulatedWorkers::applied(std::uint32_t revision) {
  known_.clear();
  recent_.clear();
  partial_.forget_rates();
  applied_ = revision;
  finish(revision, protocol::Outcome::kApplied, "");
  if (next_) begin(*std::exchange(next_, std::nullopt));
}

void SimulatedWorkers::load(schedule::Plan plan) {
  step_ = step();
  training_ = false;
  loading_ = true;
  ++life_;
  partial_.stop();
  const bool recovers = plan.state == schedule::StateMove::kRecover && held_by_living();
  const bool moves = recovers || (plan.state == schedule::StateMove::kMove && !broken_);
  if (!moves) return load_checkpoint(plan, kLoad, kLoad);
  std::map<std::string, double> seconds;  // by node that receives
  std::int64_t bytes = 0;
  for (const auto& to : plan.ranks) {
    const auto& range = plan.stages[static_cast<std::size_t>(to.stage)];
    const auto held = std::ranges::find_if(plan_->ranks, [&](const auto& one) {
      return one.pod_uid == to.pod_uid && live(one) && !partial_.lost().contains(one.replica);
    });
    for (int layer = range.first; layer <= range.last; ++layer) {
      if (held != plan_->ranks.end()) {
        const auto& own = plan_->stages[static_cast<std::size_t>(held->stage)];
        if (own.first <= layer && layer <= own.last) continue;
      }
      bytes += kStateFactor * kParameterBytes;
      seconds[to.node] +=
          kStateFactor * kParameterBytes / (shape_.node_rate * std::max(0.01, node_share(to.node)));
    }
  }
  double most = 0;
  for (const auto& [node, one] : seconds) most = std::max(most, one);
  const double pause = kConnect + most;
  Random chance(mix_seed(seed_ + 1, plan.revision));
  const bool breaks = chance.uniform() < kBrokenMoves && !recovers;
  agenda_.after(pause, [this, plan, pause, bytes, breaks, life = life_] {
    if (life != life_) return;
    if (breaks) {  // after COMMIT there is no way back: the checkpoint, with the new plan
      finish(plan.revision, protocol::Outcome::kAborted, "a transfer broke off");
      // A connection that breaks is a hazard, too, which the job that does nothing does not meet.
      excused_ = true;
      work_ += (kRejoin + kLoad) * usual_rate_;
      return load_checkpoint(plan, kRejoin + kLoad, kRejoin + kLoad);
    }
    loaded(plan, pause, schedule::StateMove::kMove, bytes);
  });
}

// Whether the processes that live have every layer at one step. Replicas that average may hold
// models of their own.
bool SimulatedWorkers::held_by_living() const {
  if (!plan_ || schedule::averages(*plan_)) return false;
  std::set<int> held;
  for (const auto& one : plan_->ranks) {
    if (live(one)) held.insert(one.stage);
  }
  return std::ssize(held) == plan_->stage_count();
}

void SimulatedWorkers::load_checkpoint(const schedule::Plan& plan, double after, double pause) {
  agenda_.after(after, [this, plan, pause, life = life_] {
    if (life != life_) return;
    take_checkpoint_step();
    loaded(plan, pause, schedule::StateMove::kCheckpoint);
  });
}

void SimulatedWorkers::take_checkpoint_step() {
  const std::int64_t from = std::max<std::int64_t>(0, checkpoint_);
  if (from > step_) wrong_.push_back("a checkpoint of steps that were never done");
  if (!excused_) work_ -= unsaved_;
  unsaved_ = 0;
  step_ = from;
}

void SimulatedWorkers::loaded(const schedule::Plan& plan, double pause, schedule::StateMove state,
                              std::int64_t moved) {
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
  ++generations_;
  if (const auto since = std::exchange(committed_at_, std::nullopt)) {
    pause = std::max(pause, agenda_.now() - *since);  // the way to where all met counts
  }
  partial_.begin_generation(plan, step_);
  finish(plan.revision, protocol::Outcome::kApplied, "", pause, moved, state);
  go_on();
  if (next_) begin(*std::exchange(next_, std::nullopt));
}

void SimulatedWorkers::finish(std::uint32_t revision, protocol::Outcome outcome,
                              const std::string& reason, double pause, std::int64_t moved,
                              schedule::StateMove state) {
  last_switch_ = protocol::LastSwitch{revision, outcome, step(), pause, reason, moved, state};
  told_();
}

// As neighbors by index time their links, both ways, before the first plan. Later nobody does: that
// would be a look at idle nodes that nobody has.
void SimulatedWorkers::probe() {
  constexpr double kRoundTrip = 1e-4;
  for (auto low = processes_.begin(), high = std::next(low); high != processes_.end();
       ++low, ++high) {
    const std::string &a = low->second.node, &b = high->second.node;
    const double rate = shape_.node_rate * std::min(node_share(a), node_share(b));
    probed_.push_back({a, b, rate, kRoundTrip});
    probed_.push_back({b, a, rate, kRoundTrip});
  }
}

protocol::Register SimulatedWorkers::registration() const {
  protocol::Register out;
  out.links = probed_;
  out.job_uid = "job-uid";
  out.model = {"m", shape_.layers, "sha256:0"};
  out.profile_json = profile_json(shape_);
  out.last_checkpoint_step = checkpoint_;
  for (const auto& [worker, process] : processes_) {
    protocol::Member member;
    member.pod = process.pod;
    member.pod_uid = process.uid;
    member.worker_index = worker;
    member.ips = {"10.0.0." + std::to_string(worker + 1)};
    member.node = process.node;
    member.ranks = {{"A", shape_.memory_bytes}};
    out.members.push_back(member);
  }
  return out;
}

protocol::Report SimulatedWorkers::report() const {
  protocol::Report out;
  out.job_uid = "job-uid";
  out.plan_revision = applied_;
  out.last_switch = last_switch_;
  out.step = step();
  out.total_steps = 1'000'000;
  out.last_checkpoint_step = checkpoint_;
  const double seconds = std::accumulate(recent_.begin(), recent_.end(), 0.0);
  if (seconds > 0) {
    out.samples_per_second = static_cast<double>(recent_.size()) * global_batch() / seconds;
  }
  if (in_groups()) out.samples_per_second = partial_.samples_per_second();
  out.segment = segments_.current();
  out.previous_segment = segments_.previous();
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
  if (in_groups()) return partial_.newest_step(first->replica);
  const auto p = static_cast<std::size_t>(first->replica);
  return p < newest_.size() ? newest_[p] : 0;
}

void SimulatedWorkers::add_work(int samples) {
  constexpr std::size_t kRecent = 10;  // the coordinator's window
  work_ += samples;
  unsaved_ += samples;
  rest_ += samples;
  last_trained_ = agenda_.now();
  if (rest_ < global_batch()) return;
  rest_ -= global_batch();
  usual_rate_ = global_batch() / (agenda_.now() - step_began_);
  const double began = std::exchange(step_began_, agenda_.now());
  if (in_groups()) return;
  ++step_;
  recent_.push_back(agenda_.now() - began);
  if (recent_.size() > kRecent) recent_.pop_front();
  if (step_ % kSaveEvery == 0) {
    checkpoint_ = step_;
    unsaved_ = 0;
  }
}

}  // namespace weir::sim
