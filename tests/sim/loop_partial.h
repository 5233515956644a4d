// SPDX-License-Identifier: Apache-2.0
// Replicas that average in groups (sync.mode Partial), in virtual time: the real
// coordinator::SyncRounds decides who averages with whom and where all meet; here is what the ranks
// do (worker/engine): steps, SYNC_READY, averages that take time, the jump to the step of the
// fastest, rounds that come to nothing when a member dies. One stage speaks for its replica:
// messages inside a pipeline take no time. Each GRANT is checked by a GroupWatch.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/agenda.h"
#include "tests/sim/group_watch.h"
#include "worker/coordinator/members.h"
#include "worker/coordinator/sync_rounds.h"
#include "worker/groups/node_rates.h"
#include "worker/schedule/plan.h"

namespace weir::sim {

class PartialReplicas {
 public:
  struct Job {
    std::function<double(int replica, const schedule::Plan&)> step_seconds;  // and counts its ops
    std::function<double(const std::vector<int>& members)> average_seconds;
    std::function<double(int replica)> node_rate;  // bytes per second
    // It has done a step with that plan, in so many seconds of its own.
    std::function<void(int replica, const schedule::Plan&, double seconds)> stepped;
    // All that train hold one model after so many steps, and begin the next one after this call.
    std::function<void(std::int64_t step)> met;
    std::function<void()> adopted;  // all that train have done a step with the plan of adopt()
  };
  PartialReplicas(Agenda& agenda, Job job) : agenda_(agenda), job_(std::move(job)) {}

  void set_members(coordinator::Members members) { members_ = std::move(members); }
  // Generations, exact or not. ends(): the next one is committed; this one trains until it meets.
  void begin_generation(const schedule::Plan& plan, std::int64_t step);
  void generation_ends() { rounds_.follow(nullptr); }
  void end_generation();
  void exact_step(std::int64_t step);  // all have done it

  // From now on in groups, in this generation; all stand at that step.
  void train(const schedule::Plan& plan, std::int64_t step);
  void stop();                              // exact from now on
  void follow(const schedule::Plan& plan);  // of the same generation, committed
  void adopt(const schedule::Plan& plan);   // likewise; each takes it before its next step
  void meet_at(std::int64_t step);          // all that train; not before highest_step() + 2
  // The others go on without it. False: they cannot, the generation is gone.
  bool lose(int replica);

  const std::set<int>& lost() const { return lost_; }
  std::int64_t least_step() const;    // completed, of those that train
  std::int64_t highest_step() const;  // likewise
  double shortest_step() const;       // seconds of the newest steps with their waits, 0 = unknown
  double newest_step(int replica) const { return at(replica).whole_seconds; }
  double samples_per_second() const;  // of the last ten steps of each
  void forget_rates();
  double node_rate(int replica) const { return at(replica).node_rate; }  // as it was told
  double apart(int replica) const { return at(replica).apart; }  // samples since its last average
  // Since the start.
  int meetings() const { return meetings_; }
  int drifts() const { return drifts_; }
  int failed_rounds() const { return failed_; }
  int losses() const { return losses_; }
  double mean_group() const { return rounds_granted_ > 0 ? members_granted_ / rounds_granted_ : 0; }
  std::vector<std::string> take_wrong();

 private:
  enum class State : unsigned char { kIdle, kRuns, kReady, kAverages };
  struct Rate {
    double seconds = 0, samples = 0;
  };
  struct Replica {
    State state = State::kIdle;
    std::uint64_t life = 0;  // events of an older one are void
    std::int64_t step = 0;   // completed, with those it passed over
    double began = 0, seconds = 0, whole_seconds = 0, apart = 0;
    double average_seconds = 0, mean_at = 0;  // of its last average
    int missing = -1;                         // in that, which went on beside a step
    std::uint32_t revision = 0;               // of the plan in force there
    protocol::Grant grant;                    // its last
    double node_rate = 0;                     // as its last grant told
    std::vector<groups::ReceivedRate> received;
    std::deque<Rate> recent;
  };

  SteadyTime now() const;
  void after(int replica, double seconds, void (PartialReplicas::*what)(int));
  void begin(int replica);
  void end_step(int replica);
  void take(const coordinator::SyncRounds::Effects& effects);
  void begin_average(const protocol::Grant& grant);
  void end_average(const std::vector<int>& members);
  void go_on(int replica);
  void done_with_plan(int replica);
  void look_at_timer();
  const schedule::Plan& plan_of(int replica) const;
  int worker(int replica, int stage) const;
  void status(int replica);
  void fail(const std::string& what) { wrong_.push_back(what); }
  bool trains(int replica) const { return !lost_.contains(replica); }
  Replica& at(int replica) { return replicas_[static_cast<std::size_t>(replica)]; }
  const Replica& at(int replica) const { return replicas_[static_cast<std::size_t>(replica)]; }
  int count() const { return static_cast<int>(replicas_.size()); }

  Agenda& agenda_;
  const Job job_;
  coordinator::Members members_;
  coordinator::SyncRounds rounds_{1'000'000};
  GroupWatch watch_;
  schedule::Plan plan_, before_;  // in force where it was taken; and elsewhere
  std::set<int> waiting_;         // replicas that have to do a step with plan_
  std::vector<Replica> replicas_;
  std::set<int> lost_;
  std::set<std::int64_t> due_meetings_;
  std::optional<SteadyTime> timer_;  // that an event waits for
  std::uint64_t life_ = 0;
  int meetings_ = 0, drifts_ = 0, failed_ = 0, losses_ = 0;
  double rounds_granted_ = 0, members_granted_ = 0;
  std::vector<std::string> wrong_;
};

}  // namespace weir::sim
