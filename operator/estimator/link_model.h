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
  std::map<int, std::pair<double, double>> stage_seconds;
};

// Adds the scrapes that are newer than the newest kept one. The caller resets the state when the
// plan's generation changes, because the links are others then. A sample between other nodes than
// those kept of its link replaces them.
void add_scrapes(LinkModelState& state, const std::vector<Scrape>& scrapes);
Estimates estimates_of(const LinkModelState& state, Freshness source, SystemTime now,
                       std::chrono::seconds stale_after);

// Adds the links between replicas. Scrapes in which only these links have a rate are added to the
// rate vectors, too; links between stages were too fast to be timed in them and get NaN there.
void add_sync_links(Estimates& estimates, const LinkModelState& sync, Freshness source,
                    SystemTime now, std::chrono::seconds stale_after);

}  // namespace weir::estimator
