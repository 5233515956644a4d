// SPDX-License-Identifier: Apache-2.0
// Computes the cost of a plan, its step time over the observed link rates
// (operator/adaptation/costing/README.md "Cost").
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/adaptation/costing/input.h"
#include "operator/planner/model/model.h"
#include "worker/schedule/bounds.h"
#include "worker/schedule/simulator.h"

namespace weir::costing {

// The links of one job in a fixed order: replica, then boundary, then direction.
struct LinkView {
  int replicas = 1;
  std::vector<estimator::LinkKey> links;
  std::vector<double> bytes;                 // bytes of one micro-batch of the current size
  std::vector<double> mean_rate;             // bytes per second, mean over V
  std::vector<double> latency;               // seconds, half a round trip
  std::vector<std::vector<double>> vectors;  // V x links: seconds of one transfer, bytes / rate
  std::string unknown;                       // why the view is incomplete; empty = complete
  // The rest is from Input, for the current micro-batch size. pipelines may be empty.
  std::vector<Replica> pipelines;
  std::vector<schedule::StageTime> stages;
  int micro_batch_size = 1;
  double sync_seconds = 0;  // without what split backwards of the plan in force add
  SumsLeft sums;
  bool apart = false;
};

// Makes the view over V, the newest 16 scrapes. If a link has no traffic in a scrape, the last rate
// before it counts, else the first one after it. The view is incomplete with fewer than 4 scrapes,
// or if a link has no rate at all.
LinkView view_links(const Input& input);

// Limits of what one costing simulates. If a step has many ops, fewer plans, link times and bins
// are used, so that a tick takes about 10 ms for any job.
struct Effort {
  bool all = true;        // no limit; false = no search for caps, and median link times only
  std::size_t bins = 16;  // most bins of V
  std::size_t plans = 0;  // plans besides the current one, the most promising by a closed form
};
Effort effort_of(const LinkView& view, const Size& size);

// Vectors of V that differ by less than a factor of 1.2 on every link are merged into a bin with
// their mean. The factor grows until there are at most `most` bins.
struct Bin {
  double weight = 0;            // fraction of all vectors
  std::vector<double> seconds;  // seconds of one transfer by link
};
std::vector<Bin> bins_of(const LinkView& view, std::size_t most = 16);

// The micro-batch sizes that the job may run with; the current one is first.
std::vector<Size> sizes_of(const Input& input);

// The pipeline of one replica for a size. seconds: transfer times by link of the view, for the
// current size; they are scaled to the size. Stages of a replica keep their ratio to the slowest
// replica's.
schedule::PipelineModel model_of(const Size& size, const LinkView& view,
                                 const std::vector<double>& seconds, int replica);

// A step of the plan in force, simulated, and what no order of its ops can beat at the same rates;
// both with the exposed sync and without the correction factor. 0 = unknown.
struct Bound {
  double step_seconds = 0, least_seconds = 0;
};

// Costs plans and counts the simulations.
class Coster {
 public:
  Coster(const LinkView& view, std::vector<Bin> bins) : view_(view), bins_(std::move(bins)) {}

  // Seconds of a simulated step, mean over V, without the correction factor. Replicas wait for the
  // slowest one, and the exposed sync is added; or each goes at its own pace (Input::apart).
  double mean_step(const schedule::Schedule& schedule, const Size& size);
  // Seconds of one step with these transfer times.
  double step(const schedule::Schedule& schedule, const Size& size,
              const std::vector<double>& seconds);
  // No order can beat this, mean over V, without the exposed sync.
  double least_step(const Size& size, schedule::Backwards backwards) const;
  int simulations() const { return simulations_; }
  void count(int simulations) { simulations_ += simulations; }

 private:
  const LinkView& view_;
  std::vector<Bin> bins_;
  int simulations_ = 0;
};

// Unknown if the rate of a link is, if plan and profile disagree on the stages, and if replicas do
// not wait for each other. splits: whether orders with split backwards count.
Bound bound_of(const Input& input, bool splits);

// Quantile q over V of each link's transfer time, without latency.
std::vector<double> link_quantile(const LinkView& view, double q);
// Transfer time with latency by boundary: mean of both directions, maximum over replicas.
std::vector<std::chrono::nanoseconds> boundary_times(const LinkView& view, const Size& size,
                                                     const std::vector<double>& seconds);

inline constexpr double kMedian = 0.5;  // quantile
// A link is bound if a transfer takes this part of the slowest stage's time; no order helps then.
inline constexpr double kBoundShare = 0.9;

std::string link_name(const estimator::LinkKey& link);  // e.g. "1-2 forward"
// Correction factor of a micro-batch size; that of the current size if the size never ran.
double correction_of(const State& state, int micro_batch_size, int current_size);

// The tiers are asked with these costs of the job's steps.
struct Costing {
  const planner::Model& model;
  const Input& input;
  const State& state;
  double current_seconds = 0;  // predicted step of the plan in force
};

// Seconds of a step of the input's current schedule, mean over its rate vectors, with the
// correction factor. Nothing if the rate of a link is unknown.
std::optional<double> predicted_step(const Input& input, const State& state);

}  // namespace weir::costing
