// SPDX-License-Identifier: Apache-2.0
// What the estimator believes about one job, from samples of Prometheus or of reports. Pure data.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weir::estimator {

using SystemTime = std::chrono::system_clock::time_point;

// Forward and backward between the stages of a replica; sums between the replicas of a stage.
enum class Direction : unsigned char { kForward, kBackward, kSync };

struct LinkKey {
  int replica = 0;   // kSync: that receives
  int boundary = 0;  // between stage b and b+1; kSync: the stage
  Direction direction = Direction::kForward;
  int sender = -1;  // kSync: replica
  auto operator<=>(const LinkKey&) const = default;
};

// One scrape of one job: goodput of every link that had traffic, joint in time.
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

// The joint distribution of link rates: element i of every link belongs to the same scrape.
struct RateVectors {
  std::vector<SystemTime> times;  // oldest first, at most 32
  std::map<LinkKey, std::vector<double>>
      rates;  // bytes per second; NaN = no traffic in that scrape
  std::map<LinkKey, double> rtt_seconds;
};

struct LinkEstimate {
  LinkKey link;
  std::string from_node, to_node;
  double now = 0;                   // median of the newest samples, bytes per second
  double baseline = 0;              // 95 % quantile of the last hour; 0 = unknown
  bool preempted = false;           // operator/tuner/README.md "Inputs"
  std::optional<SystemTime> since;  // of the preemption
  double mean = 0;                  // over the newest 16, of the time that bytes take
};

// T_p: a replica's own time of a step, that is without its wait for other replicas.
struct ReplicaTime {
  std::int64_t steps = 0;  // completed in the interval, >= 1
  double seconds = 0;      // mean T_p over them
  double smoothed = 0;     // EWMA(0.5) a step, at the end of the interval
};
// Time between two scrapes in which every replica completed a step or more.
struct ReplicaInterval {
  SystemTime end{};
  std::map<int, ReplicaTime> replicas;  // by index
};
struct ReplicaSpeed {
  double seconds = 0;                // EWMA(0.5) of T_p; > 0
  double others_seconds = 0;         // median of the other replicas'; 0 = there is no other
  std::int64_t steps = 0;            // measured, of those kept
  double sync_bytes_per_second = 0;  // of its link to other replicas; 0 = unknown
};
struct ReplicaEstimates {
  bool fresh = false;
  std::map<int, ReplicaSpeed> speeds;      // by index of the replica; empty = unknown
  std::vector<ReplicaInterval> intervals;  // oldest first, joint in time
};

enum class Freshness : unsigned char {
  kFresh,
  kNotConfigured,
  kNoSeries,
  kStale,
  kQueryFailed,
  kDisabled
};
const char* name(Freshness freshness);  // the reason of NetworkMetricsAvailable

// Of training as the workers' own metrics show it: a witness beside the coordinator's reports.
struct Progress {
  std::int64_t step = 0;
  SystemTime since{};  // when this step was seen first
  SystemTime seen{};   // when it was seen last
  bool operator==(const Progress&) const = default;
};

struct Estimates {
  Freshness freshness = Freshness::kNoSeries;
  std::string detail;  // for people: which query failed and why
  std::optional<SystemTime> last_sample;
  std::optional<Progress> progress;      // absent: no worker is scraped now
  RateVectors rates;                     // of links between stages
  std::vector<LinkEstimate> links;       // likewise
  std::vector<LinkEstimate> sync_links;  // between replicas; sync.mode Exact
  // Measured seconds of one forward and backward per stage over 5 min; absent = use the profile.
  std::map<int, std::pair<double, double>> stage_seconds;
  // The same by pod and stage.
  std::map<std::pair<std::string, int>, std::pair<double, double>> worker_seconds;
  ReplicaEstimates replicas;           // replica_model.h
  std::int64_t replicas_revision = 0;  // of the applied plan under which they were measured
};

}  // namespace weir::estimator
