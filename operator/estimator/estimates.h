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

enum class Direction : unsigned char { kForward, kBackward };

struct LinkKey {
  int replica = 0;
  int boundary = 0;  // between stage b and b+1
  Direction direction = Direction::kForward;
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
  bool preempted = false;           // scheduling.md 5.5
  std::optional<SystemTime> since;  // of the preemption
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

struct Estimates {
  Freshness freshness = Freshness::kNoSeries;
  std::string detail;  // for people: which query failed and why
  std::optional<SystemTime> last_sample;
  RateVectors rates;
  std::vector<LinkEstimate> links;
  // Measured seconds of one forward and backward per stage over 5 min; absent = use the profile.
  std::map<int, std::pair<double, double>> stage_seconds;
};

}  // namespace weir::estimator
