// SPDX-License-Identifier: Apache-2.0
// Forms sync groups step by step: ready replicas average their models, and wait for others as long
// as the wait is worth its time (worker/groups/README.md "Gates"). Pure: the current time is an
// argument, on one monotonic clock. Arrivals go in; grants and the time of the next tick() come
// out.
// Invariants (worker/groups/README.md "Invariants"):
//   G1 a replica is in one open round at most        G2 only arrived replicas are granted
//   G4 weights sum to 1, in proportion to m_p        G5 all living replicas are connected at least
//   every B steps of the fastest (+ max(2, 3B/10) of a replica on a slow node)
//   G6 progress of a granted group <= least progress of the living + tau     G7 rounds only grow
// gather() forms one group of all living replicas, for a plan switch at which their models must be
// equal.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "worker/groups/contraction.h"
#include "worker/groups/distances.h"
#include "worker/groups/node_rates.h"
#include "worker/groups/partner_selection.h"
#include "worker/groups/settings.h"
#include "worker/groups/sync_graph.h"

namespace weir::groups {

struct Config {
  Settings settings;
  std::vector<int> shares;  // m_p: micro-batches per step, one per replica
  int stages = 1;           // S
  // Position of each replica in the topology, by which ring members are sorted; may be empty.
  std::vector<int> places;
};

// The last stage of a replica has ended its last backward: the step is done except for the average.
struct Arrival {
  int replica = 0;
  std::int64_t step = 0;               // local steps, including this one
  double progress = 0;                 // of the replica: progress of its last grant + m_p / M
  double step_seconds = 0;             // T_p of this step, without waiting for others; 0 = unknown
  std::vector<ReceivedRate> received;  // rates of its last average; empty if unknown or none
  // Duration of that average once all members had begun; 0 if averages cannot overlap with steps.
  double average_seconds = 0;
  // Highest round that the replica has seen: a new coordinator continues from it.
  std::uint64_t last_round = 0;
};

// One group of one round, sent to all of its members at once.
struct FormedGroup {
  std::uint64_t round = 0;
  std::vector<int> members;         // in ring order
  std::vector<std::int64_t> steps;  // of each member: the step with which it arrived
  std::vector<double> weights;      // of each member; sum 1
  double progress = 0;              // of all members after the average
  bool connects = false;            // formed to connect all replicas: may exceed group_size_max
  bool gathers = false;             // all living replicas, as requested by gather()
  // The average is expected to take long, so it runs during the members' next step. That step's
  // update follows the average.
  bool overlaps = false;
};

class GroupScheduler {
 public:
  // At the start, all replicas of the plan are alive and none is connected, which is the safe
  // assumption. Rounds begin above last_round, because a restarted coordinator must not reuse a
  // round of its predecessor.
  GroupScheduler(Config config, std::uint64_t seed, std::uint64_t last_round = 0);

  // Grants nothing if a granted step arrives again; granted() returns its grant.
  std::vector<FormedGroup> arrived(const Arrival& arrival, Time now);
  // A member of the round continues without the average. `missing` (-1 = unknown) did not come and
  // counts as dead until it arrives again. It is unknown who has averaged, so no replicas count as
  // connected any longer. Clocks stay as granted.
  std::vector<FormedGroup> failed(std::uint64_t round, int missing, Time now);
  std::vector<FormedGroup> died(int replica, Time now);
  void joined(int replica, double progress);  // with the model and the progress of a living replica
  void began(int replica, Time now);          // its round is over and its next step has begun
  std::vector<FormedGroup> tick(Time now);    // call this at timer()
  // Holds arrivals until all living replicas are there, then forms one group of all. Afterwards
  // grouping continues as usual.
  void gather() { gathering_ = true; }
  std::optional<Time> timer() const { return timer_; }

  std::optional<FormedGroup> granted(int replica, std::int64_t step) const;
  // Another plan with the same replicas. Known step times are scaled by the predicted ratio, so
  // that the replicas do not look slow or fast because of the change.
  void reconfigure(Config config, double time_ratio);

  bool living(int replica) const { return graph_.living(replica); }
  // Bandwidth of the replica's node in bytes per second, estimated from its averages; 0 = unknown.
  double node_rate(int replica) const { return node_rates_.of(replica); }
  double median_seconds() const;  // step time without waiting for other replicas; 0 = unknown
  std::uint64_t round() const { return round_; }
  // Factor by which disagreement shrank in the last full window of B steps of the fastest replica.
  // A factor above 0.5 is an alarm. Nothing before the end of the first window.
  std::optional<double> contraction() const { return contracted_; }

 private:
  struct Replica {
    std::int64_t steps = 0, last_mix = 0;
    double progress = 0;
    double seconds = 0;  // moving average (0.5) of T_p, scaled to the mean share; 0 = unknown
    // Time to move one model through its node's link, as in its last average.
    double state_seconds = 0;
    // Start of the running step; nothing if it is in a round, ready or unknown.
    std::optional<Time> started;
    bool seen = false;
    std::optional<FormedGroup> grant;  // the last grant
  };
  using Ready = std::map<int, Time>;  // replica -> time of arrival

  void take(const Arrival& arrival, Time now);
  std::vector<FormedGroup> decide(Time now);
  enum class Kind : unsigned char { kUsual, kConnects, kGathers };
  void grant_all(std::vector<FormedGroup>& grants);
  std::set<int> slow_nodes() const;
  double average_seconds(int replica, std::size_t members) const;
  bool holds_up(int replica) const;
  void grant_slow_nodes(const std::set<int>& slow, std::vector<FormedGroup>& grants);
  bool connecting() const;
  bool hold_for_connection() const;
  void drop_stale(Ready& ready) const;
  Patience patience_of(const std::vector<int>& here) const;
  bool wait_for_partners(const Ready& ready, Time now);
  void hold_partners(Ready& ready, const std::set<int>& slow, Time now);
  std::optional<Time> due_of(int replica) const;
  std::vector<std::vector<int>> split_by_node(const Ready& ready, const std::set<int>& slow) const;
  std::vector<std::vector<int>> split(const Ready& ready, int most) const;
  void commit(const std::vector<std::vector<int>>& groups, Kind kind,
              std::vector<FormedGroup>& grants);
  FormedGroup form_group(std::vector<int> members, Kind kind) const;
  void apply(const FormedGroup& grant);
  void count_window();

  Replica& at(int replica) { return replicas_[static_cast<std::size_t>(replica)]; }
  const Replica& at(int replica) const { return replicas_[static_cast<std::size_t>(replica)]; }
  int count() const { return static_cast<int>(replicas_.size()); }
  int living_count() const;
  std::int64_t most_steps() const;
  double mean_share() const;              // M
  double share_ratio(int replica) const;  // m_p / M
  double time_factor(int replica) const;  // (m_p + S - 1) / (M + S - 1)
  // Least progress of the living replicas that are not in `ready`; infinite if there are none.
  double slowest_elsewhere(const Ready& ready) const;

  Config config_;
  std::vector<Replica> replicas_;
  SyncGraph graph_;
  Contraction estimate_;
  NodeRates node_rates_;
  Distances distances_;
  Ready ready_;
  std::uint64_t round_ = 0;
  bool clocks_known_ = false, gathering_ = false;
  // win0: steps of the fastest at the last full connection.
  std::optional<std::int64_t> window_begin_;
  std::optional<std::int64_t> estimate_begin_;
  std::optional<double> contracted_;
  std::optional<Time> timer_;
};

// Key for the communicator of a group: its members in rising order, e.g. "0-2-5".
std::string key_of(std::span<const int> members);

}  // namespace weir::groups
