// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/model/cluster.h"

#include <algorithm>
#include <cmath>

#include "worker/base/units.h"

namespace weir::planner {
namespace {

// A guess for two ranks on one node, where no link is listed.
constexpr double kLocalBytesPerSecond = 12e9;
constexpr std::chrono::nanoseconds kLocalLatency{5'000};
constexpr double kLeastCurveRate = 1e6;  // curves fall below zero for small messages

}  // namespace

LinkRate link_between(const Cluster& cluster, const std::string& from_node,
                      const std::string& to_node) {
  const auto listed = std::find_if(
      cluster.links.rbegin(), cluster.links.rend(),
      [&](const LinkRate& link) { return link.from_node == from_node && link.to_node == to_node; });
  if (listed != cluster.links.rend()) return *listed;
  if (from_node == to_node) return {from_node, to_node, kLocalBytesPerSecond, kLocalLatency};
  return {from_node,
          to_node,
          cluster.default_bytes_per_second,
          cluster.default_latency,
          cluster.default_share,
          cluster.default_curve};
}

double effective_rate(const LinkRate& link, std::int64_t message_bytes) {
  double rate = link.bytes_per_second;
  if (link.curve) {
    const RateCurve& curve = *link.curve;
    double x = std::log2(static_cast<double>(std::max<std::int64_t>(message_bytes, 1)) / 1e6);
    if (curve.a < 0) x = std::min(x, -curve.b / (2 * curve.a));
    rate = std::clamp((curve.a * x * x + curve.b * x + curve.c) * 1e9, kLeastCurveRate,
                      std::max(kLeastCurveRate, curve.most_bytes_per_second));
  }
  return rate * link.available_share;
}

double transfer_seconds(const LinkRate& link, std::int64_t bytes) {
  return to_seconds(link.latency) + static_cast<double>(bytes) / effective_rate(link, bytes);
}

double reserve_of(const Cluster& cluster, const Device& device) {
  const auto found = std::ranges::find_if(
      cluster.classes, [&](const DeviceClass& known) { return known.name == device.device_class; });
  return found == cluster.classes.end() ? cluster.memory_reserve : found->memory_reserve;
}

std::int64_t usable_bytes(const Cluster& cluster, const Device& device) {
  return static_cast<std::int64_t>(static_cast<double>(device.memory_bytes) *
                                   (1 - reserve_of(cluster, device)));
}

}  // namespace weir::planner
