// SPDX-License-Identifier: Apache-2.0
// Keeps the last scrapes of one job and makes estimates of its links from them. Pure: the time is
// an argument.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "operator/estimator/estimates.h"

namespace weir::estimator {

constexpr std::size_t kKeptScrapes = 32;  // V, and as many before it for comparison
constexpr std::size_t kUsedScrapes = 16;  // V (operator/adaptation/costing/README.md "Inputs")

struct LinkModelState {
  std::vector<Scrape> scrapes;         // oldest first
  std::map<LinkKey, double> baseline;  // bytes per second
  std::map<LinkKey, SystemTime> preempted_since;
  std::map<LinkKey, int> below, above;  // evaluations in a row with a low or a high share
  SystemTime evaluated{};               // time of the newest scrape in the last evaluation
  std::map<int, std::pair<double, double>> stage_seconds;
};

// Adds the scrapes that are newer than the newest kept one. The caller resets the state when the
// plan's generation changes, because the links are others then.
void add_scrapes(LinkModelState& state, const std::vector<Scrape>& scrapes);
// Evaluates the detector of preempted links once. A link becomes preempted when its median rate is
// below 0.8 of the baseline in two evaluations in a row, and recovers above 0.9. Its mean must also
// be 10 % below that of the scrapes before, so that mere scatter does not count.
void evaluate(LinkModelState& state, SystemTime now);
Estimates estimates_of(const LinkModelState& state, Freshness source, SystemTime now,
                       std::chrono::seconds stale_after);

// Adds the links between replicas. Scrapes in which only these links have a rate are added to the
// rate vectors, too; links between stages were too fast to be timed in them and get NaN there.
void add_sync_links(Estimates& estimates, const LinkModelState& sync, Freshness source,
                    SystemTime now, std::chrono::seconds stale_after);

}  // namespace weir::estimator
