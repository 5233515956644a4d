// SPDX-License-Identifier: Apache-2.0
// How fast each worker usually computes its layers, from the segments of a day. Pure: the time is
// an argument.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weir::explain {

// Times of forward and backward over those of the profile.
using Slowness = std::pair<double, double>;
inline double sum(const Slowness& slowness) {
  return slowness.first + slowness.second;
}

struct DeviceHistory {
  using Time = std::chrono::system_clock::time_point;
  // Steps in a row at one speed.
  struct Stretch {
    Time begin{};
    std::uint32_t revision = 0;
    std::int64_t first_step = 0, last_step = 0;
    Slowness slowness;
    double steps = 0;
  };
  std::map<std::string, std::vector<Stretch>> seen;  // by device_key, oldest first
};

// The steps of a segment.
struct Span {
  std::uint32_t revision = 0;
  std::int64_t first_step = 0;
  int steps = 0;
};

// Other layers take another time over their profile, so they have a history of their own.
std::string device_key(const std::string& pod, int first_layer, int last_layer);

// Keeps what a segment tells; a later report of the same segment replaces it.
void remember(DeviceHistory& history, const std::map<std::string, Slowness>& devices,
              const Span& segment, DeviceHistory::Time now);

// The 10 % quantile over the steps of 24 h. Nothing = never measured.
std::optional<Slowness> usual_slowness(const DeviceHistory& history, const std::string& key);

}  // namespace weir::explain
