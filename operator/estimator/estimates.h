// SPDX-License-Identifier: Apache-2.0
// Estimates about one job: rates of links, times of stages and replicas. Pure data.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weir::estimator {

using SystemTime = std::chrono::system_clock::time_point;

// kForward and kBackward are between stages of a replica, kSync between replicas of a stage.
enum class Direction : unsigned char { kForward, kBackward, kSync };

struct LinkKey {
  int replica = 0;   // of kSync: the replica that receives
  int boundary = 0;  // b between stages b and b+1; of kSync: the stage
  Direction direction = Direction::kForward;
  int sender = -1;  // of kSync: the replica that sends; else -1
  auto operator<=>(const LinkKey&) const = default;
};

// A scrape has a sample of every link of a job that had traffic at that time.
struct LinkSample {
  LinkKey link;
  std::string from_node, to_node;
  double bytes_per_second = 0;  // goodput per busy second, > 0
  double rtt_seconds = 0;       // 0 = unknown
};
struct Scrape {
  SystemTime time{};
  std::vector<LinkSample> links;
};

// The joint distribution of link rates: element i of every vector belongs to the scrape times[i].
struct RateVectors {
  std::vector<SystemTime> times;  // oldest first, at most 32
  // bytes per second; NaN = no traffic in that scrape
  std::map<LinkKey, std::vector<double>> rates;
  std::map<LinkKey, double> rtt_seconds;
};

struct LinkEstimate {
  LinkKey link;
  std::string from_node, to_node;
  double now = 0;  // bytes per second, median of the newest samples
  // Usual rate, bytes per second (README "Contention"); without segments the 95 % quantile of an
  // hour. 0 = unknown.
  double baseline = 0;
  bool preempted = false;           // contended (README "Contention")
  std::optional<SystemTime> since;  // when the contention began
  double mean = 0;                  // bytes per second, harmonic mean of the newest 16 samples
};

// T_p is a replica's own time of a step, without its wait for other replicas.
struct ReplicaTime {
  std::int64_t steps = 0;  // completed in the interval, >= 1
  double seconds = 0;      // mean T_p of these steps
  double smoothed = 0;     // moving average of T_p (weight 0.5 per step) at the interval's end
};
// The time between two scrapes in which every replica has completed at least one step.
struct ReplicaInterval {
  SystemTime end{};
  std::map<int, ReplicaTime> replicas;  // by index
};
struct ReplicaSpeed {
  double seconds = 0;                // moving average of T_p (weight 0.5 per step); > 0
  double others_seconds = 0;         // median of that of the other replicas; 0 = no other replica
  std::int64_t steps = 0;            // number of steps in the kept intervals
  double sync_bytes_per_second = 0;  // rate of its link to other replicas; 0 = unknown
};
struct ReplicaEstimates {
  bool fresh = false;
  std::map<int, ReplicaSpeed> speeds;      // by index of the replica; empty = unknown
  std::vector<ReplicaInterval> intervals;  // oldest first
};

enum class Freshness : unsigned char { kFresh, kNotConfigured, kNoSeries, kStale, kQueryFailed };
const char* name(Freshness freshness);  // reason of condition NetworkMetricsAvailable

// Progress of training according to the workers' metrics, independent of the coordinator's reports.
struct Progress {
  std::int64_t step = 0;
  SystemTime since{};  // when this step was first scraped
  SystemTime seen{};   // when it was last scraped
  bool operator==(const Progress&) const = default;
};

struct Estimates {
  Freshness freshness = Freshness::kNoSeries;
  std::string detail;  // which query failed and why, for messages
  std::optional<SystemTime> last_sample;
  std::optional<Progress> progress;      // absent = no worker is scraped now
  RateVectors rates;                     // links between stages
  std::vector<LinkEstimate> links;       // links between stages
  std::vector<LinkEstimate> sync_links;  // links between replicas with sync.mode Exact
  // Measured seconds of one forward and one backward by stage, over 5 min; of split backwards both
  // parts. Absent = use the profile.
  std::map<int, std::pair<double, double>> stage_seconds;
  // The same by pod and stage.
  std::map<std::pair<std::string, int>, std::pair<double, double>> worker_seconds;
  ReplicaEstimates replicas;           // replica_model.h
  std::int64_t replicas_revision = 0;  // revision of the applied plan during their measurement
  // Bytes of packed contributions to exact sums over the same as doubles, when sums were packed
  // last: 0.125 .. 1; 1 = never seen.
  double packed_part = 1;
};

}  // namespace weir::estimator
