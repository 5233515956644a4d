// SPDX-License-Identifier: Apache-2.0
// What a plan costs over the observed link rates. Inside the room only.
#pragma once

#include <string>
#include <vector>

#include "operator/tuner/tune.h"
#include "worker/schedule/simulator.h"

namespace weir::tuner {

// The links of one job in a fixed order: replica, then boundary, then direction.
struct LinkView {
  int replicas = 1;
  std::vector<estimator::LinkKey> links;
  std::vector<double> bytes;                 // of one micro-batch
  std::vector<double> mean_rate;             // bytes per second over V
  std::vector<double> latency;               // seconds, RTT/2
  std::vector<std::vector<double>> vectors;  // V x links: seconds of one transfer, bytes / rate
  std::string unknown;                       // why there is no view; empty = complete
};

// V is the newest 16 scrapes. A link without traffic in a scrape has its newest rate known by then,
// else its first. Fewer than 4 scrapes, or a link without any rate: unknown.
LinkView view_links(const Input& input);

// Vectors that differ by less than a factor of 1.2 on every link are one, at their mean.
struct Bin {
  double weight = 0;            // of all vectors
  std::vector<double> seconds;  // per link
};
std::vector<Bin> bins_of(const LinkView& view);

// Mean over V of the simulated step, seconds, before kappa; replicas wait for the slowest.
double mean_step(const schedule::Schedule& schedule, const Input& input, const LinkView& view,
                 const std::vector<Bin>& bins);

// Quantile q of c_hat per boundary: mean of both directions, largest replica.
std::vector<std::chrono::nanoseconds> transfer_quantile(const LinkView& view, int boundaries,
                                                        double q);

std::string link_name(const estimator::LinkKey& link);  // "1-2 forward"

}  // namespace weir::tuner
