// SPDX-License-Identifier: Apache-2.0
#include "operator/explain/device_history.h"

#include <algorithm>
#include <cmath>

namespace weir::explain {
namespace {

constexpr std::chrono::hours kKept{24};
constexpr std::size_t kMostStretches = 32;
constexpr double kAlike = 0.03;         // ratio of two speeds that count as one
constexpr double kUsualQuantile = 0.1;  // of slowness, so that most of a day may be slow
constexpr int kFullWindow = 63;         // of 64 steps of a segment one may not count

constexpr int kSteadySteps = 8;  // whose mean hardly scatters

// Whether the segment is the one of that stretch, some steps later.
bool goes_on(const DeviceHistory::Stretch& stretch, const Span& segment) {
  if (stretch.revision != segment.revision) return false;
  if (segment.steps >= kFullWindow) return segment.first_step <= stretch.last_step;
  return segment.first_step <= stretch.first_step + 1;
}

bool alike(const Slowness& a, const Slowness& b) {
  return std::abs(sum(a) / sum(b) - 1) <= kAlike;
}

Slowness mean_of(const DeviceHistory::Stretch& a, const DeviceHistory::Stretch& b) {
  const double all = a.steps + b.steps;
  const auto mean = [&](double first, double second) {
    return (a.steps * first + b.steps * second) / all;
  };
  return {mean(a.slowness.first, b.slowness.first), mean(a.slowness.second, b.slowness.second)};
}

}  // namespace

std::string device_key(const std::string& pod, int first_layer, int last_layer) {
  return pod + "/" + std::to_string(first_layer) + "-" + std::to_string(last_layer);
}

void remember(DeviceHistory& history, const std::map<std::string, Slowness>& devices,
              const Span& segment, DeviceHistory::Time now) {
  for (const auto& [key, slowness] : devices) {
    auto& seen = history.seen[key];
    DeviceHistory::Stretch fresh{.begin = now,
                                 .revision = segment.revision,
                                 .first_step = segment.first_step,
                                 .last_step = segment.first_step + segment.steps - 1,
                                 .slowness = slowness,
                                 .steps = static_cast<double>(segment.steps)};
    if (!seen.empty() && goes_on(seen.back(), segment)) {
      auto& newest = seen.back();
      newest.steps +=
          static_cast<double>(std::max<std::int64_t>(0, fresh.last_step - newest.last_step));
      newest.last_step = fresh.last_step;
      // A mean that rises may hold the first steps of what comes next.
      const bool quicker = sum(slowness) < sum(newest.slowness);
      if (quicker || segment.steps < kSteadySteps) newest.slowness = slowness;
    } else if (!seen.empty() && alike(seen.back().slowness, slowness)) {
      fresh.slowness = mean_of(seen.back(), fresh);
      fresh.steps += seen.back().steps;
      seen.back() = fresh;
    } else {
      seen.push_back(fresh);
    }
    if (seen.size() > kMostStretches) seen.erase(seen.begin());
  }
  for (auto& [key, seen] : history.seen) {
    std::erase_if(seen, [&](const auto& stretch) { return now - stretch.begin > kKept; });
  }
  std::erase_if(history.seen, [](const auto& entry) { return entry.second.empty(); });
}

std::optional<Slowness> usual_slowness(const DeviceHistory& history, const std::string& key) {
  const auto found = history.seen.find(key);
  if (found == history.seen.end()) return std::nullopt;
  auto sorted = found->second;
  std::ranges::sort(sorted, {}, [](const auto& stretch) { return sum(stretch.slowness); });
  double all = 0, below = 0;
  for (const auto& stretch : sorted) all += stretch.steps;
  for (const auto& stretch : sorted) {
    below += stretch.steps;
    if (below >= kUsualQuantile * all) return stretch.slowness;
  }
  return std::nullopt;
}

}  // namespace weir::explain
