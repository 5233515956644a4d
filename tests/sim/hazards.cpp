// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/hazards.h"

#include <algorithm>
#include <cmath>

#include "worker/base/random.h"

namespace weir::sim {
namespace {

double log_uniform(Random& random, double least, double most) {
  return least * std::exp(random.uniform() * std::log(most / least));
}

// Spells of exponential length with a value drawn anew for each; 1 between them.
template <class Value>
Course spells(Random& random, double length, double pause, double horizon, Value value) {
  Course course;
  for (double t = random.exponential(pause); t < horizon;) {
    course.set(t, value());
    t += std::max(1.0, random.exponential(length));
    course.set(t, 1);
    t += std::max(1.0, random.exponential(pause));
  }
  return course;
}

Course share_of(Random& random, double horizon) {
  const auto share = [&] { return log_uniform(random, 0.05, 0.7); };
  const double kind = random.uniform();
  if (kind < 0.45) return {};
  if (kind < 0.70) return spells(random, 600, 1500, horizon, share);  // another job's life
  if (kind < 0.85) return spells(random, 60, 300, horizon, share);    // its checkpoints
  const double burst = log_uniform(random, 2, 30);                    // its steps
  return spells(random, burst, burst, horizon, share);
}

Course slowness_of(Random& random, double horizon) {
  const auto factor = [&] { return log_uniform(random, 1.1, 3); };
  const double kind = random.uniform();
  if (kind < 0.6) return {};
  if (kind < 0.8) return spells(random, 900, 1500, horizon, factor);
  return spells(random, log_uniform(random, 5, 120), 400, horizon, factor);
}

}  // namespace

double Course::at(double time) const {
  const auto after = std::ranges::upper_bound(points_, time, {}, &std::pair<double, double>::first);
  return after == points_.begin() ? 1 : std::prev(after)->second;
}

Hazards random_hazards(std::uint64_t seed, const HazardOptions& options) {
  Hazards hazards;
  for (int node = 0; node < options.nodes; ++node) {
    Random random(mix_seed(mix_seed(seed, "node"), static_cast<std::uint64_t>(node)));
    hazards.node_share.push_back(share_of(random, options.horizon));
    hazards.slow.push_back(slowness_of(random, options.horizon));
  }
  Random random(mix_seed(seed, "job"));
  constexpr double kBetweenDeaths = 1500, kBetweenLeaders = 2000, kBetweenBlind = 1500;
  for (double t = random.exponential(kBetweenDeaths); t < options.horizon;
       t += 60 + random.exponential(kBetweenDeaths)) {
    const auto workers = static_cast<std::uint64_t>(options.workers);
    hazards.deaths.emplace_back(t, static_cast<int>(random.below(workers)));
  }
  for (double t = random.exponential(kBetweenLeaders); t < options.horizon;
       t += 60 + random.exponential(kBetweenLeaders)) {
    hazards.new_leaders.push_back(t);
  }
  for (double t = random.exponential(kBetweenBlind); t < options.horizon;
       t += 200 + random.exponential(kBetweenBlind)) {
    hazards.blind.emplace_back(t, t + 10 + 140 * random.uniform());
  }
  return hazards;
}

}  // namespace weir::sim
