// SPDX-License-Identifier: Apache-2.0
// Keeps the last scrapes of one job and says what they mean. Pure: the time is an argument.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "operator/estimator/estimates.h"

namespace weir::estimator {

constexpr std::size_t kKeptScrapes = 32;  // V and what was before it
constexpr std::size_t kUsedScrapes = 16;  // V (operator/tuner/README.md "Inputs")

struct LinkModelState {
  std::vector<Scrape> scrapes;         // oldest first
  std::map<LinkKey, double> baseline;  // bytes per second
  std::map<LinkKey, SystemTime> preempted_since;
  std::map<LinkKey, int> below, above;  // evaluations in a row
  SystemTime evaluated{};               // the newest scrape of the last evaluation
  std::map<int, std::pair<double, double>> stage_seconds;
};

// Adds scrapes newer than the newest kept one; drops links that no longer exist when the plan's
// generation changes (caller: reset).
void add_scrapes(LinkModelState& state, const std::vector<Scrape>& scrapes);
// Moves the detector one evaluation on: preempted when the median share < 0.8 twice, recovered >
// 0.9 twice. A link whose rates only scatter is not preempted: its mean must be 10 % below that of
// the scrapes before.
void evaluate(LinkModelState& state, SystemTime now);
Estimates estimates_of(const LinkModelState& state, Freshness source, SystemTime now,
                       std::chrono::seconds stale_after);

// Adds the links between replicas. Scrapes at which only these had traffic that could be timed
// count, too: others carried theirs too fast, and are known by what they had before (NaN in their
// vectors).
void add_sync_links(Estimates& estimates, const LinkModelState& sync, Freshness source,
                    SystemTime now, std::chrono::seconds stale_after);

}  // namespace weir::estimator
