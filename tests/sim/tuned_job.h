// SPDX-License-Identifier: Apache-2.0
// A job in virtual time: the simulator is the workers, links have rate traces, counters are scraped
// and averaged over a window as Prometheus does, the operator's estimator and tuner close the loop.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "operator/adaptation/retune/tune.h"
#include "operator/estimator/link_model.h"
#include "worker/base/random.h"
#include "worker/schedule/simulator.h"

namespace weir::sim {

// One replica. A micro-batch of n samples takes forward x (n + overhead), backward_ratio times that
// backward, and transfer x n over a free link.
struct Job {
  int stages = 4;
  int samples = 64;                 // a step
  int samples_in_flight = 1 << 20;  // memory, per stage
  // What a device really holds, where that is not what the plans count with; 0 = it never runs out.
  double real_samples = 0;
  double forward = 0.004;  // seconds per sample
  double overhead = 0.5;   // samples
  double backward_ratio = 2;
  double weights = 0;  // part of a backward that makes gradients of weights; 0: none splits
  std::vector<double> transfer;             // seconds per sample and boundary
  std::vector<schedule::RateTrace> shares;  // per boundary, both directions; empty = free
  std::vector<int> sizes = {1};             // micro-batch sizes the tuner may choose from

  retune::Size size(int micro_batch_size) const;
  // Without traces.
  schedule::PipelineModel model(int micro_batch_size) const;
};

struct Loop {
  double scrape = 1, window = 5, tick = 5;  // seconds
  double rate_noise = 0, step_noise = 0;    // lognormal, of each scraped rate and of each step
  retune::Settings settings;
  int used_scrapes = 16;  // size of V
  bool tune = true;
};

struct Switch {
  std::size_t step = 0;  // after so many
  double time = 0;
  std::string text;
};

class TunedJob {
 public:
  TunedJob(Job job, Loop loop, schedule::Schedule first, std::uint64_t seed);

  void run(std::size_t steps);
  void run_until(double seconds);
  // From now on; what was measured stays.
  void set_transfer(std::size_t boundary, double seconds_per_sample);
  // The phase of the next tick and scrape.
  void next_tick_in(double seconds) { next_tick_ = time_ + seconds; }

  double time() const { return time_; }
  double mean(std::size_t first, std::size_t end) const;  // of steps, seconds
  const std::vector<double>& steps() const { return steps_; }
  const std::vector<Switch>& switches() const { return switches_; }
  const schedule::Schedule& current() const { return current_; }
  int evaluations() const { return evaluations_; }  // that costed plans
  int alarms() const { return alarms_; }            // changes for want of memory
  double least_free() const;                        // part of a device now

 private:
  struct Transfer {
    double end = 0, bytes = 0, busy = 0;
  };
  void one_step();
  const std::vector<int>& most_held() const {  // by stage, micro-batches
    return current_.split ? current_.split->held : current_.caps;
  }
  void load_model();
  void take_scrape();
  void evaluate();

  Job job_;
  Loop loop_;
  Random random_;
  schedule::Schedule current_;
  schedule::PipelineModel model_;
  int micro_batches_ = 1;
  std::vector<std::deque<Transfer>> transfers_;  // per boundary and direction
  estimator::LinkModelState links_;
  retune::State state_;
  double time_ = 0, next_scrape_ = 0, next_tick_ = 0, owed_ = 0;
  int evaluations_ = 0, alarms_ = 0;
  std::vector<double> steps_;
  std::vector<Switch> switches_;
};

// On and off in turns of exponential length: `share` of the rate for `duty` of the time.
schedule::RateTrace bursts(Random& random, double share, double mean_burst, double duty,
                           double horizon);

// Every plan worth fixing: kFkB for k in 1,2,3,4,6,8 (Strict), with Hint slack 2..8 and kFkB's
// caps, of each size, within memory. If backwards split, these with A_s = x_s and with A_s = x_0,
// too.
std::vector<schedule::Schedule> fixed_plans(const Job& job, schedule::Dispatch dispatch);
// Steps per second of a plan that never changes.
double throughput(const Job& job, const schedule::Schedule& plan, double seconds);
// The least step time of these over free links; within 0.5 % the least in flight.
schedule::Schedule best_when_free(const Job& job, const std::vector<schedule::Schedule>& plans);

}  // namespace weir::sim
