// SPDX-License-Identifier: Apache-2.0
// A job of real workers that the operator plans and explains: its decisions are those of
// reconcile, its pods are played. Each worker has a network namespace, and each pair of workers a
// link of its own. One thread.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/estimator/link_model.h"
#include "operator/explain/causes.h"
#include "tests/bench/namespaces.h"
#include "tests/multiproc/operated_job.h"
#include "tests/multiproc/played_operator.h"
#include "tests/operator/controller/reconcile/world.h"

namespace weir::bench {

class NamedJob {
 public:
  static constexpr int kStages = 4, kMicroBatches = 8, kSamples = 2;
  static constexpr double kForward = 0.010, kBackward = 0.020;  // seconds of a stage
  static constexpr double kRate = 12.5e6;                       // bytes per second, of each link

  // words: arguments of each worker, besides. Null, and a line on standard error: no namespaces, or
  // the job does not begin.
  static std::unique_ptr<NamedJob> start(int replicas, const Namespaces& spaces,
                                         const std::map<int, std::vector<std::string>>& words);

  // Stage s of replica r is worker r x stages + s, and its node bears that number.
  static int worker(int replica, int stage) { return replica * kStages + stage; }
  const std::string& pod(int worker) const { return pods_[static_cast<std::size_t>(worker)].name; }
  static std::string node(int worker) { return "n" + std::to_string(worker + 1); }
  const test::Process& process(int worker) const {
    return job_->worker(static_cast<std::size_t>(worker));
  }
  // From now on.
  bool limit(int from, int to, double bytes_per_second) const {
    return spaces_.limit_pair(from, to, bytes_per_second);
  }

  // Hears reports, so many more; false if they do not come.
  bool hear(int reports);
  const explain::Causes& causes() const { return world_.adaptation.network.causes; }
  // When the next step ends, and how many have ended by then. Saves lie between steps, so the mean
  // of steps with their saves is the time from one end to another.
  struct StepEnd {
    std::chrono::steady_clock::time_point time;
    double steps = 0;
  };
  StepEnd next_end() const;
  const std::vector<estimator::LinkEstimate>& links_of_sums() const {
    return world_.estimates.sync_links;
  }
  int late_p99() const;  // microseconds, of wake-ups

 private:
  NamedJob(int replicas, const Namespaces& spaces);
  bool plan();
  void scrape();

  const int replicas_;
  const Namespaces& spaces_;
  test::TempDir folder_;
  test::PlayedOperator operator_;
  reconcile::test::World world_;
  std::vector<test::OperatedPod> pods_;
  std::unique_ptr<test::OperatedJob> job_;
  std::vector<int> metrics_ports_;
  std::int64_t heard_ = -1;
  estimator::LinkModelState sums_;
  using Counted = std::map<estimator::LinkKey, std::array<double, 2>>;  // bytes, seconds
  std::deque<Counted> counted_;                                         // of a window
  std::map<estimator::LinkKey, std::vector<double>> rates_;             // seen so far
};

}  // namespace weir::bench
