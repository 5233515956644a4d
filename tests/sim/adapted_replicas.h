// SPDX-License-Identifier: Apache-2.0
// A data-parallel job in virtual time whose sync policy the operator's code chooses: counters are
// scraped, the policy is asked every tick, its decisions change shares and mode, in Partial the
// group scheduler forms the groups. The speeds of the replicas change as a list of regimes says.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "operator/adaptation/shares/policy.h"
#include "operator/estimator/replica_model.h"
#include "tests/sim/uneven_replicas.h"
#include "worker/groups/group_scheduler.h"

namespace weir::sim {

struct Regime {
  double begin = 0;
  UnevenOptions options;
};

struct AdaptedOptions {
  std::vector<Regime> regimes;  // the first begins at 0; all with as many replicas
  shares::Spec spec;
  bool adapt = true;  // false: nothing ever changes
  double scrape = 5, tick = 15, retune_cooldown = 60, regroup_cooldown = 600;
};

class AdaptedReplicas {
 public:
  AdaptedReplicas(AdaptedOptions options, std::uint64_t seed);
  void run_until(double time);

  double micro_batches() const { return done_; }  // of all replicas, up to now
  shares::Mode mode() const { return input_.current.mode; }
  const std::vector<int>& shares() const { return input_.shares; }
  const std::vector<std::string>& changes() const { return changes_; }

 private:
  UnevenReplicas& world();
  double step_seconds(int p);
  void exact_step();
  void partial_until(double time);
  void begin(int p);
  void arrive(int p);
  void take(const std::vector<groups::FormedGroup>& grants);
  void count(int p, double seconds);
  void observe();
  void decide();
  void judge();
  void adopt(const shares::Decision& decision);
  groups::Config config() const;

  AdaptedOptions options_;
  std::vector<UnevenReplicas> worlds_;
  shares::Input input_;
  shares::State memory_;
  estimator::ReplicaModelState model_;
  estimator::ReplicaScrape counters_;
  double time_ = 0, done_ = 0, next_scrape_, next_tick_;
  std::optional<gate::SystemTime> last_retune_, last_regroup_;
  std::vector<std::string> changes_;

  // The check of the last change of shares.
  struct Pending {
    std::vector<int> before, after;
    double seconds_before = 0, gain = 0;
    int steps = 0;
  };
  std::vector<Pending> pending_;  // one or none
  std::vector<double> recent_;    // seconds of the last exact steps

  // Partial.
  struct Replica {
    std::int64_t steps = 0;
    double progress = 0, seconds = 0;
    std::vector<groups::ReceivedRate> received;  // in its last average
  };
  struct Event {
    double time;
    std::uint64_t sequence;
    std::function<void()> what;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };
  void at(double time, std::function<void()> what) { events_.push({time, sequence_++, what}); }
  std::vector<groups::GroupScheduler> scheduler_;  // one while Partial
  std::vector<Replica> replicas_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t sequence_ = 0;
};

}  // namespace weir::sim
