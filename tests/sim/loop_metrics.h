// SPDX-License-Identifier: Apache-2.0
// Prometheus and the operator's metrics loop for one simulated job: counters are scraped, asked for
// over windows, and given to the estimator, as operator/metrics and controller/metrics_loop do.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "operator/api/pipeline_job.h"
#include "operator/estimator/link_model.h"
#include "operator/estimator/replica_model.h"
#include "tests/sim/loop_workers.h"
#include "worker/base/random.h"

namespace weir::sim {

class SimulatedMetrics {
 public:
  SimulatedMetrics(const SimulatedWorkers& workers, std::uint64_t seed)
      : workers_(workers), random_(seed) {}

  void scrape(double time);
  // Of the plan in force: what belongs to another one is forgotten, as the metrics loop does.
  void follow(const api::PipelineJob& job, double time);
  // answers: false = Prometheus does not.
  estimator::Estimates estimates(double time, bool answers);

  static estimator::SystemTime wall(double time);

 private:
  using LinkName = SimulatedWorkers::LinkName;
  using Place = std::pair<std::string, int>;  // pod and stage
  struct Scraped {
    double time = 0;
    std::map<LinkName, SimulatedWorkers::LinkCounter> links;
    std::map<Place, SimulatedWorkers::OpCounter> ops;
  };
  const Scraped& before(double time) const;  // the newest that is not newer
  // Of links between replicas, or between stages.
  estimator::Scrape rates_at(const Scraped& now, bool sync);
  void find_baselines(double time);

  const SimulatedWorkers& workers_;
  Random random_;
  std::deque<Scraped> scraped_;                                        // of 5 minutes
  std::map<LinkName, std::deque<std::pair<double, double>>> goodput_;  // of an hour
  double baselines_at_ = -1e9;
  std::map<estimator::LinkKey, double> baseline_;
  std::vector<estimator::Scrape> fresh_, fresh_sync_;  // not yet asked for
  std::vector<estimator::ReplicaScrape> fresh_replicas_;
  estimator::LinkModelState model_, sync_model_;
  estimator::ReplicaModelState replicas_;
  std::int64_t seen_revision_ = 0, replicas_revision_ = 0;
};

}  // namespace weir::sim
