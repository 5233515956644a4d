// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/uneven_replicas.h"

#include <algorithm>
#include <cmath>

#include "tests/support/received_rates.h"

namespace weir::sim {
namespace {

constexpr double kLatency = 0.0005;  // of one hop of a ring
constexpr double kDuty = 0.15;
constexpr double kSlowShare = 0.2;  // of a slow sync link
constexpr double kHorizon = 4000;

}  // namespace

UnevenReplicas::UnevenReplicas(UnevenOptions options, std::uint64_t seed) : options_(options) {
  const double p = options.replicas;
  volume_ = (options.sync - 2 * (p - 1) * kLatency) * p / (2 * (p - 1));
  for (int i = 0; i < options.replicas; ++i) {
    random_.emplace_back(mix_seed(seed, static_cast<std::uint64_t>(2 * i)));
    Random spell(mix_seed(seed, static_cast<std::uint64_t>(2 * i + 1)));
    std::vector<std::pair<double, bool>> spells;
    bool on = spell.uniform() < kDuty;
    for (double t = 0; t < kHorizon; on = !on) {
      spells.emplace_back(t, on);
      t += spell.exponential(on ? options.dwell : options.dwell * (1 - kDuty) / kDuty);
    }
    spells_.push_back(std::move(spells));
  }
}

bool UnevenReplicas::disturbed(int p, double t) const {
  const auto& spells = spells_[static_cast<std::size_t>(p)];
  const auto after = std::ranges::upper_bound(spells, t, {}, &std::pair<double, bool>::first);
  return std::prev(after)->second;
}

double UnevenReplicas::slowness(int p, double t) {
  Random& random = random_[static_cast<std::size_t>(p)];
  switch (options_.kind) {
    case Uneven::kOneSlow:
      return p == 0 ? options_.slow : 1;
    case Uneven::kTail:
      return 1 + (random.uniform() < 0.1 ? random.exponential(options_.slow - 1) : 0);
    case Uneven::kChanging:
      return disturbed(p, t) ? options_.slow : 1;
    default:
      return 1;
  }
}

double UnevenReplicas::step_seconds(int p, double t, double share) {
  const int fill = options_.stages - 1;
  const double part = (share * kMicroBatches + fill) / (kMicroBatches + fill);
  const double noise = std::exp(options_.jitter * random_[static_cast<std::size_t>(p)].normal());
  return slowness(p, t) * part * noise;
}

double UnevenReplicas::bandwidth(int p, double t) const {
  if (options_.kind == Uneven::kSlowSync) return disturbed(p, t) ? kSlowShare : 1;
  if (options_.kind == Uneven::kOneSlowSync) return p == 0 ? kSlowShare : 1;
  return 1;
}

std::vector<groups::ReceivedRate> UnevenReplicas::received(int p, const std::vector<int>& group,
                                                           double t) const {
  constexpr double kUsual = 1e9;  // B/s
  return test::received_rates(p, group, [&](int q) { return kUsual * bandwidth(q, t); });
}

double UnevenReplicas::sync_seconds(const std::vector<int>& group, double t) const {
  const auto members = static_cast<double>(group.size());
  if (members < 2) return 0;
  double slowest = 1;
  for (const int p : group) slowest = std::min(slowest, bandwidth(p, t));
  return 2 * (members - 1) / members * volume_ / slowest + 2 * (members - 1) * kLatency;
}

}  // namespace weir::sim
