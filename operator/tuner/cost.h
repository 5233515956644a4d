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
  std::vector<double> bytes;                 // of one micro-batch of the current size
  std::vector<double> mean_rate;             // bytes per second over V
  std::vector<double> latency;               // seconds, RTT/2
  std::vector<std::vector<double>> vectors;  // V x links: seconds of one transfer, bytes / rate
  std::string unknown;                       // why there is no view; empty = complete
  // Of Input, with the current micro-batch size; pipelines may be empty.
  std::vector<Replica> pipelines;
  std::vector<schedule::StageTime> stages;
  int micro_batch_size = 1;
  double sync_seconds = 0;
  bool apart = false;
};

// V is the newest 16 scrapes. A link without traffic in a scrape has its newest rate known by then,
// else its first. Fewer than 4 scrapes, or a link without any rate: unknown.
LinkView view_links(const Input& input);

// What one costing may simulate. A step of few ops leaves everything as it is; with more ops a step
// fewer plans, link times and bins are looked at, so that a tick takes some 10 ms for any job.
struct Effort {
  bool all = true;        // no limit; else no search for caps, and the median only
  std::size_t bins = 16;  // of V
  std::size_t plans = 0;  // besides the current one, the most promising by a closed form
};
Effort effort_of(const LinkView& view, const Size& size);

// Vectors that differ by less than a factor of 1.2 on every link are one, at their mean; the factor
// grows until there are at most `most`.
struct Bin {
  double weight = 0;            // of all vectors
  std::vector<double> seconds;  // per link
};
std::vector<Bin> bins_of(const LinkView& view, std::size_t most = 16);

// The sizes the job may run with: the current one first.
std::vector<Size> sizes_of(const Input& input);

// The pipeline of one replica with links of these times (per link of the view, current size),
// scaled to a size; stages of a replica keep their ratio to the slowest.
schedule::PipelineModel model_of(const Size& size, const LinkView& view,
                                 const std::vector<double>& seconds, int replica);

// Costs plans and counts what it simulated.
class Coster {
 public:
  Coster(const LinkView& view, std::vector<Bin> bins) : view_(view), bins_(std::move(bins)) {}

  // Seconds of a simulated step, mean over V, without the correction factor. Replicas wait for the
  // slowest one, and the exposed sync is added; or each goes at its own pace (Input::apart).
  double mean_step(const schedule::Schedule& schedule, const Size& size);
  // One step with links of these times.
  double step(const schedule::Schedule& schedule, const Size& size,
              const std::vector<double>& seconds);
  int simulations() const { return simulations_; }
  void count(int simulations) { simulations_ += simulations; }

 private:
  const LinkView& view_;
  std::vector<Bin> bins_;
  int simulations_ = 0;
};

// Quantile q over V of each link's transfer time, without latency.
std::vector<double> link_quantile(const LinkView& view, double q);
// c_hat per boundary of these times, latency included: mean of both directions, largest replica.
std::vector<std::chrono::nanoseconds> boundary_times(const LinkView& view, const Size& size,
                                                     const std::vector<double>& seconds);

std::string link_name(const estimator::LinkKey& link);  // "1-2 forward"
// Correction factor of a micro-batch size; that of the current size if the size never ran.
double correction_of(const State& state, int micro_batch_size, int current_size);

}  // namespace weir::tuner
