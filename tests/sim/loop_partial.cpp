// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/loop_partial.h"

#include <algorithm>
#include <map>

#include "tests/support/received_rates.h"
#include "worker/base/units.h"

namespace weir::sim {
namespace {

constexpr std::size_t kRecentSteps = 10;  // worker/coordinator/report.cpp
constexpr int kMeetingParts = 3;          // parameters and both moments, engine/state_average.cpp

}  // namespace

SteadyTime PartialReplicas::now() const {
  return SteadyTime(from_seconds(agenda_.now()));
}

void PartialReplicas::begin_generation(const schedule::Plan& plan, std::int64_t step) {
  end_generation();
  plan_ = before_ = plan;
  replicas_.assign(plan.micro_batches.size(), {});
  for (Replica& one : replicas_) one.step = step;
  rounds_.follow(&plan);
  watch_.begin(plan);
}

void PartialReplicas::end_generation() {
  stop();
  lost_.clear();
  due_meetings_.clear();
  rounds_.follow(nullptr);
}

void PartialReplicas::stop() {
  ++life_;
  timer_.reset();
  waiting_.clear();
  for (Replica& one : replicas_) {
    ++one.life;
    one.state = State::kIdle;
  }
}

void PartialReplicas::exact_step(std::int64_t step) {
  for (int p = 0; p < count(); ++p) {
    at(p).step = step;
    status(p);
  }
  // In an exact step all meet.
  due_meetings_.erase(due_meetings_.begin(), due_meetings_.upper_bound(step));
}

void PartialReplicas::follow(const schedule::Plan& plan) {
  before_ = std::exchange(plan_, plan);
  rounds_.follow(&plan);
  watch_.follow(plan);
}

void PartialReplicas::adopt(const schedule::Plan& plan) {
  follow(plan);
  for (int p = 0; p < count(); ++p) {
    if (trains(p)) waiting_.insert(p);
  }
}

void PartialReplicas::train(const schedule::Plan& plan, std::int64_t step) {
  stop();
  plan_ = before_ = plan;
  for (int p = 0; p < count(); ++p) {
    if (!trains(p)) continue;
    at(p).step = step;
    at(p).revision = plan.revision;
    begin(p);
  }
}

void PartialReplicas::meet_at(std::int64_t step) {
  rounds_.gather_at(step);
  due_meetings_.insert(step);
}

const schedule::Plan& PartialReplicas::plan_of(int replica) const {
  return at(replica).revision == plan_.revision ? plan_ : before_;
}

int PartialReplicas::worker(int replica, int stage) const {
  for (const auto& rank : plan_.ranks) {
    if (rank.replica != replica || rank.stage != stage) continue;
    const auto* member = members_.by_pod(rank.pod);
    return member == nullptr ? -1 : member->member.worker_index;
  }
  return -1;
}

void PartialReplicas::status(int replica) {
  for (int stage = plan_.stage_count(); stage-- > 0;) {
    rounds_.on_status({.epoch = at(replica).revision,
                       .step = at(replica).step,
                       .replica = replica,
                       .stage = stage},
                      now());
  }
}

void PartialReplicas::after(int replica, double seconds, void (PartialReplicas::*what)(int)) {
  agenda_.after(seconds, [this, replica, what, life = at(replica).life, all = life_] {
    if (all == life_ && life == at(replica).life) (this->*what)(replica);
  });
}

void PartialReplicas::begin(int replica) {
  Replica& one = at(replica);
  one.revision = plan_.revision;
  one.state = State::kRuns;
  one.began = agenda_.now();
  one.seconds = job_.step_seconds(replica, plan_);
  // It ends with the mean that goes on beside it.
  after(replica, std::max(one.seconds, one.mean_at - agenda_.now()), &PartialReplicas::end_step);
}

void PartialReplicas::end_step(int replica) {
  Replica& one = at(replica);
  const schedule::Plan& plan = plan_of(replica);
  const double samples =
      plan.micro_batches[static_cast<std::size_t>(replica)] * plan.schedule.micro_batch_size;
  one.apart += samples;
  one.recent.push_back({0, samples});
  if (one.recent.size() > kRecentSteps) one.recent.pop_front();
  one.state = State::kReady;
  job_.stepped(replica, plan, one.seconds);
  watch_.ready(replica);
  if (one.missing >= 0) {
    watch_.failed();
    const protocol::RoundFailed failed{.replica = replica,
                                       .round = one.grant.round,
                                       .missing = std::exchange(one.missing, -1),
                                       .reason = ""};
    take(rounds_.on_failed(worker(replica, 0), failed, members_, now()));
  }
  protocol::SyncReady ready{.replica = replica,
                            .step = one.step + 1,
                            .step_seconds = one.seconds,
                            .received = {},
                            .average_seconds = std::exchange(one.average_seconds, 0)};
  for (const auto& rate : std::exchange(one.received, {})) {
    ready.received.push_back({rate.from, rate.bytes_per_second});
  }
  take(rounds_.on_ready(worker(replica, plan_.stage_count() - 1), ready, members_, now()));
}

// Each rank of each member gets its GRANT.
void PartialReplicas::take(const coordinator::SyncRounds::Effects& effects) {
  for (const auto& warning : effects.warnings) {
    if (warning.starts_with("replicas drift apart")) ++drifts_;
  }
  std::map<std::int64_t, std::map<int, int>> receivers;  // by round: replica -> ranks
  std::map<std::int64_t, protocol::Grant> grants;
  for (const auto& [index, message] : effects.send) {
    const auto& grant = std::get<protocol::Grant>(message);
    const auto* member = members_.find(index);
    const auto rank = std::ranges::find(plan_.ranks, member->member.pod, &schedule::RankPlace::pod);
    if (rank == plan_.ranks.end()) {
      fail("a GRANT for a worker without a rank");
      continue;
    }
    ++receivers[grant.round][rank->replica];
    grants[grant.round] = grant;
    Replica& one = at(rank->replica);
    one.node_rate = grant.node_bytes_per_second;
    if (one.state != State::kReady || grant.step != one.step + 1) {
      fail("a GRANT for step " + std::to_string(grant.step) + ", replica " +
           std::to_string(rank->replica) + " is at " + std::to_string(one.step));
    }
    if (grant.next_step < grant.step) fail("a GRANT goes back");
  }
  for (const auto& [round, grant] : grants) {
    for (const int p : grant.members) {
      if (receivers[round][p] != plan_.stage_count()) fail("a rank of a member has no GRANT");
    }
    begin_average(grant);
  }
  look_at_timer();
}

void PartialReplicas::look_at_timer() {
  const auto due = rounds_.timer();
  if (!due || due == timer_) return;
  timer_ = due;
  agenda_.at(to_seconds(due->time_since_epoch()), [this, due, life = life_] {
    if (life != life_ || timer_ != due) return;
    timer_.reset();
    take(rounds_.tick(members_, std::max(now(), *due)));
  });
}

void PartialReplicas::begin_average(const protocol::Grant& grant) {
  watch_.granted({grant.round, grant.members, grant.weights, grant.all});
  if (!due_meetings_.empty() && grant.next_step > *due_meetings_.begin()) {
    fail("nobody met at step " + std::to_string(*due_meetings_.begin()));
    due_meetings_.clear();
  }
  if (grant.all) due_meetings_.erase(grant.next_step);
  ++rounds_granted_;
  members_granted_ += static_cast<double>(grant.members.size());
  for (const int p : grant.members) {
    at(p).state = State::kAverages;
    at(p).grant = grant;
  }
  const double seconds = (grant.all ? kMeetingParts : 1) * job_.average_seconds(grant.members);
  for (const int p : grant.members) {
    at(p).mean_at = agenda_.now() + seconds;
    if (grant.members.size() > 1) at(p).average_seconds = seconds;
  }
  if (grant.overlaps) return end_average(grant.members);
  const int first = grant.members.front();
  agenda_.after(seconds, [this, members = grant.members, first, round = grant.round, life = life_] {
    const bool same =
        life == life_ && at(first).state == State::kAverages && at(first).grant.round == round;
    if (same) end_average(members);
  });
}

void PartialReplicas::end_average(const std::vector<int>& members) {
  const bool met = at(members.front()).grant.all;
  for (const int p : members) {
    if (members.size() > 1) {
      at(p).apart = 0;
      at(p).received = test::received_rates(p, members, job_.node_rate);
    }
    go_on(p);
  }
  if (met) {
    ++meetings_;
    const std::uint64_t life = life_;
    job_.met(at(members.front()).step);
    if (life != life_) return;
  }
  for (const int p : members) begin(p);
}

// At the step that its grant named. STATUS tells it.
void PartialReplicas::go_on(int replica) {
  Replica& one = at(replica);
  one.step = one.grant.next_step;
  one.whole_seconds = agenda_.now() - one.began;
  one.recent.back().seconds = one.whole_seconds;
  one.state = State::kIdle;
  watch_.averaged(replica);
  status(replica);
  if (one.revision == plan_.revision) done_with_plan(replica);
}

void PartialReplicas::done_with_plan(int replica) {
  if (waiting_.erase(replica) > 0 && waiting_.empty()) job_.adopted();
}

bool PartialReplicas::lose(int replica) {
  const protocol::Grant grant = at(replica).grant;
  const bool averages = at(replica).state == State::kAverages;
  if (!lost_.insert(replica).second) return true;
  if (grant.overlaps && at(replica).mean_at > agenda_.now()) {
    for (const int p : grant.members) {
      if (p != replica && at(p).grant.round == grant.round) at(p).missing = replica;
    }
  }
  if (std::ssize(lost_) == count() || (averages && grant.all)) return false;
  ++losses_;
  ++at(replica).life;
  at(replica).state = State::kIdle;
  watch_.lost(replica);
  std::vector<int> left;  // of its round: they keep their own models
  for (const int p : grant.members) {
    if (averages && p != replica) left.push_back(p);
  }
  const auto tell_failure = [&] {
    for (const int p : left) {
      watch_.failed();
      take(rounds_.on_failed(worker(p, 0),
                             {.replica = p, .round = grant.round, .missing = replica, .reason = ""},
                             members_, now()));
    }
  };
  // Either news may reach the coordinator first.
  const bool members_first = grant.round % 2 == 0;
  if (members_first) tell_failure();
  take(rounds_.without({replica}, members_, now()));
  if (!members_first) tell_failure();
  if (!left.empty()) ++failed_;
  for (const int p : left) {
    go_on(p);
    begin(p);
  }
  done_with_plan(replica);
  return true;
}

std::int64_t PartialReplicas::least_step() const {
  std::int64_t least = -1;
  for (int p = 0; p < count(); ++p) {
    if (trains(p) && (least < 0 || at(p).step < least)) least = at(p).step;
  }
  return least;
}

std::int64_t PartialReplicas::highest_step() const {
  std::int64_t highest = 0;
  for (int p = 0; p < count(); ++p) {
    if (trains(p)) highest = std::max(highest, at(p).step);
  }
  return highest;
}

double PartialReplicas::shortest_step() const {
  double shortest = 0;
  for (int p = 0; p < count(); ++p) {
    const double seconds = trains(p) ? at(p).whole_seconds : 0;
    if (seconds > 0) shortest = shortest > 0 ? std::min(shortest, seconds) : seconds;
  }
  return shortest;
}

double PartialReplicas::samples_per_second() const {
  double rate = 0;
  for (const Replica& one : replicas_) {
    double seconds = 0, samples = 0;
    for (const Rate& step : one.recent) {
      if (step.seconds <= 0) continue;  // it still waits for its average
      seconds += step.seconds;
      samples += step.samples;
    }
    if (seconds > 0) rate += samples / seconds;
  }
  return rate;
}

void PartialReplicas::forget_rates() {
  for (Replica& one : replicas_) {
    std::erase_if(one.recent, [](const Rate& step) { return step.seconds > 0; });
  }
}

std::vector<std::string> PartialReplicas::take_wrong() {
  auto wrong = std::exchange(wrong_, {});
  const auto more = watch_.take_wrong();
  wrong.insert(wrong.end(), more.begin(), more.end());
  return wrong;
}

}  // namespace weir::sim
