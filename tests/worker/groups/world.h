// SPDX-License-Identifier: Apache-2.0
// Replicas of random speed that talk to a group scheduler over a network with delays, in virtual
// time: they die in and out of rounds, come back, links are slow, the coordinator restarts. Checks
// G1 to G7 of worker/groups/README.md "Invariants" at every grant.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "worker/base/random.h"
#include "worker/base/units.h"
#include "worker/groups/group_scheduler.h"

namespace weir::groups {

struct WorldOptions {
  int replicas = 4;
  Settings settings;
  bool uneven_shares = false;
  bool slow_link = false;        // of replica 0
  double average_seconds = 0.1;  // a step is about 1 s; 0: averages do not tell how long they took
  double slow_average_seconds = 0.1;  // with replica 0
  int deaths = 0, restarts = 0;
};

class World {
 public:
  World(WorldOptions options, std::uint64_t seed);
  // Until every living replica has done as many steps; broken rules are in broken().
  void run(std::int64_t steps);

  const std::vector<std::string>& broken() const { return broken_; }
  std::int64_t least_steps() const;
  const std::vector<double>& contractions() const { return contractions_; }  // by window

 private:
  // kInRound: and waits for its end. Runs, but in an open round: the average goes on beside a step.
  enum class State { kRunning, kWaiting, kInRound, kDead };
  struct Replica {
    State state = State::kRunning;
    std::int64_t steps = 0;
    double progress = 0, speed = 1;
    std::uint64_t last_round = 0, open_round = 0;
    std::vector<ReceivedRate> received;  // in its last average
    double average_seconds = 0;          // likewise
    std::uint64_t life = 0;              // events of an earlier life are void
  };
  struct Round {
    FormedGroup grant;
    std::vector<int> received;
    bool broken = false;  // a member died
    double seconds = 0;   // once all had begun
  };

  void at(double delay, std::function<void()> what);
  void begin_step(int p);
  void end_step(int p);
  double average_seconds(const FormedGroup& grant);
  void arrive(int p);
  Arrival arrival_of(int p) const;
  void take(const std::vector<FormedGroup>& grants);
  void check_members(const FormedGroup& grant);
  void check_clocks(const std::vector<FormedGroup>& grants);
  void check_window(const std::vector<FormedGroup>& grants);
  void receive(int p, const FormedGroup& grant);
  void finish(std::uint64_t round);
  void give_up(std::uint64_t round, int missing);
  void kill();
  void revive(int p);
  void restart_coordinator();
  void arm_timer();
  double share_ratio(int p) const;
  Time now() const { return from_seconds(time_); }
  void complain(const std::string& what);

  WorldOptions options_;
  Random random_;
  Config config_;
  std::unique_ptr<GroupScheduler> scheduler_;
  std::vector<Replica> replicas_;
  std::map<std::uint64_t, Round> open_;  // by round, those granted and not over
  SyncGraph graph_;                      // our own, to check the scheduler's
  std::vector<double> believed_;         // progress as the coordinator knows it, by replica
  std::int64_t window_begin_ = 0;
  bool restarted_ = false;  // a restart in this window
  double time_ = 0;
  std::uint64_t sequence_ = 0, lives_ = 0, coordinator_life_ = 0;
  std::vector<double> contractions_;
  struct Event {
    double time;
    std::uint64_t sequence;
    std::function<void()> what;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::string> broken_;
};

}  // namespace weir::groups
