// SPDX-License-Identifier: Apache-2.0
// Forms sync groups, step by step: replicas that are there average their models, and wait for
// others while their news is worth the time (worker/groups/README.md "Gates"). Pure: the time is an
// argument, on one monotonic clock; arrivals in, grants out, and the time when tick() is due.
// Keeps of the invariants (worker/groups/README.md "Invariants"):
//   G1 a replica is in one open round at most        G2 only arrived replicas are granted
//   G4 weights sum to 1, in proportion to m_p        G5 all living replicas are connected at least
//   every B steps of the fastest (+ max(2, 3B/10) of one with a slow port)
//   G6 progress of a granted group <= least progress of the living + tau     G7 rounds only grow
// gather() makes one group of all the living, for a boundary at which their models must be one.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "worker/groups/company.h"
#include "worker/groups/contraction.h"
#include "worker/groups/distances.h"
#include "worker/groups/port_rates.h"
#include "worker/groups/settings.h"
#include "worker/groups/sync_graph.h"

namespace weir::groups {

struct Config {
  Settings settings;
  std::vector<int> shares;  // m_p, micro-batches a step, one per replica
  int stages = 1;           // S
  std::vector<int> places;  // in the order of topology: members of a ring follow it; may be empty
};

// The last stage of a replica ended its backward: a step is done but for the average.
struct Arrival {
  int replica = 0;
  std::int64_t step = 0;               // local steps, this one counted
  double progress = 0;                 // its clock: progress of its last grant + m_p / M
  double step_seconds = 0;             // T_p of this step, without waiting for others; 0 = unknown
  std::vector<ReceivedRate> received;  // in its last average, as far as known; none: it had none
  double average_seconds = 0;  // of that, once all members had begun; 0 = it cannot overlap a step
  std::uint64_t last_round = 0;  // highest it has seen: a new coordinator goes on from there
};

// One group of one round, to all of its members at once.
struct Grant {
  std::uint64_t round = 0;
  std::vector<int> members;         // in ring order
  std::vector<std::int64_t> steps;  // of each member: the one it arrived with
  std::vector<double> weights;      // of each member, sum 1
  double progress = 0;              // of all members after it
  bool connects = false;            // formed to connect all: may exceed group_size_max
  bool gathers = false;             // all the living, as gather() asked for
  // It takes long, as the last ones of its members show: it goes on beside their next step, whose
  // update follows it.
  bool overlaps = false;
};

class GroupScheduler {
 public:
  // All replicas of the plan live. Nothing counts as connected, which is safe. Rounds begin above
  // last_round: a coordinator that began again must not use a number of its predecessor.
  GroupScheduler(Config config, std::uint64_t seed, std::uint64_t last_round = 0);

  // A repetition of a granted step grants nothing: granted() has the answer.
  std::vector<Grant> arrived(const Arrival& arrival, Time now);
  // A member of that round goes on without its average; missing (-1: unknown) did not come and
  // counts as dead until it arrives again. Who has averaged is not known: nothing counts as
  // connected, which is safe. Clocks stay as granted.
  std::vector<Grant> failed(std::uint64_t round, int missing, Time now);
  std::vector<Grant> died(int replica, Time now);
  void joined(int replica, double progress);  // with the model and progress of a living one
  void began(int replica, Time now);          // its round is over, its next step has begun
  std::vector<Grant> tick(Time now);          // at timer()
  // Arrivals are held until all the living are there; then one group of all, and on as before.
  void gather() { gathering_ = true; }
  std::optional<Time> timer() const { return timer_; }

  std::optional<Grant> granted(int replica, std::int64_t step) const;
  // Another plan with the same replicas: known step times are scaled by the predicted ratio, so
  // that the change is not taken for slowness.
  void reconfigure(Config config, double time_ratio);

  bool living(int replica) const { return graph_.living(replica); }
  // Of its port, bytes per second as its averages show it; 0 = unknown.
  double port_rate(int replica) const { return ports_.of(replica); }
  double median_seconds() const;  // of a step, without waiting for others; 0 = unknown
  std::uint64_t round() const { return round_; }
  // Factor by which disagreement shrank in the last whole window of B steps of the fastest; above
  // 0.5 is an alarm. Unknown before the first window.
  std::optional<double> contraction() const { return contracted_; }

 private:
  struct Replica {
    std::int64_t steps = 0, last_mix = 0;
    double progress = 0;
    double seconds = 0;           // EWMA(0.5) of T_p as if with the mean share; 0 = unknown
    double state_seconds = 0;     // of moving a model through its port, as its last average was
    std::optional<Time> started;  // of the running step; none: in a round, ready, or unknown
    bool seen = false;
    std::optional<Grant> grant;  // the last
  };
  using Ready = std::map<int, Time>;  // replica -> arrival

  void take(const Arrival& arrival, Time now);
  std::vector<Grant> decide(Time now);
  enum class Kind : unsigned char { kUsual, kConnects, kGathers };
  void grant_all(std::vector<Grant>& grants);
  std::set<int> slow_ports() const;
  double average_seconds(int replica, std::size_t members) const;
  bool holds_up(int replica) const;
  void grant_slow_ports(const std::set<int>& slow, std::vector<Grant>& grants);
  bool connecting() const;
  bool hold_for_connection() const;
  void drop_stale(Ready& ready) const;
  Patience patience_of(const std::vector<int>& here) const;
  bool wait_for_company(const Ready& ready, Time now);
  void hold_partners(Ready& ready, const std::set<int>& slow, Time now);
  std::optional<Time> due_of(int replica) const;
  std::vector<std::vector<int>> split_by_port(const Ready& ready, const std::set<int>& slow) const;
  std::vector<std::vector<int>> split(const Ready& ready, int most) const;
  void commit(const std::vector<std::vector<int>>& groups, Kind kind, std::vector<Grant>& grants);
  Grant make_grant(std::vector<int> members, Kind kind) const;
  void apply(const Grant& grant);
  void count_window();

  Replica& at(int replica) { return replicas_[static_cast<std::size_t>(replica)]; }
  const Replica& at(int replica) const { return replicas_[static_cast<std::size_t>(replica)]; }
  int count() const { return static_cast<int>(replicas_.size()); }
  int living_count() const;
  std::int64_t most_steps() const;
  double mean_share() const;              // M
  double share_ratio(int replica) const;  // m_p / M
  double time_factor(int replica) const;  // (m_p + S - 1) / (M + S - 1)
  // Least progress of the living that are not ready; infinite: there is none.
  double slowest_elsewhere(const Ready& ready) const;

  Config config_;
  std::vector<Replica> replicas_;
  SyncGraph graph_;
  Contraction estimate_;
  PortRates ports_;
  Distances distances_;
  Ready ready_;
  std::uint64_t round_ = 0;
  bool clocks_known_ = false, gathering_ = false;
  std::optional<std::int64_t> window_begin_;  // win0: most steps at the last full connection
  std::optional<std::int64_t> estimate_begin_;
  std::optional<double> contracted_;
  std::optional<Time> timer_;
};

// Names the communicator of a group: its members in rising order, "0-2-5".
std::string key_of(std::span<const int> members);

}  // namespace weir::groups
