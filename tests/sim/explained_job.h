// SPDX-License-Identifier: Apache-2.0
// A job whose steps are those of StepWorld, and the operator that explains them: segments of the
// coordinator, the estimator, reconcile. First it trains as usual, then with faults.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operator/explain/causes.h"
#include "tests/operator/controller/reconcile/world.h"
#include "tests/sim/step_world.h"
#include "worker/coordinator/segment.h"

namespace weir::sim {

class ExplainedJob {
 public:
  // Random stages, replicas, orders, devices and links; least: stages, replicas. Links that are
  // slow as usual take as long as an op.
  ExplainedJob(std::uint64_t seed, int least_stages, int least_replicas, bool usual_links_slow);

  const schedule::Plan& plan() const { return plan_; }
  double forward() const { return kForward; }  // of a micro-batch by the profile
  const std::string& pod(int replica, int stage) const;
  const std::string& node(int replica, int stage) const;
  // Mean step of the time in which the faults would be there; saves included.
  double seconds(const std::vector<Fault>& faults) const;
  // What is named once the operator has seen those steps.
  explain::Causes causes(const std::vector<Fault>& faults);

 private:
  static constexpr double kForward = 0.02, kBackward = 0.04;
  static constexpr int kUsualSteps = 30, kFaultySteps = 40, kReportSteps = 5;

  const schedule::RankPlace& rank(int replica, int stage) const;
  double part_of_usual(int stage) const;  // of the layers that most stages have
  void start(int stages, int replicas, int micro_batches, int k);
  void tell_sums(const std::vector<Fault>& faults, Random& random);

  std::uint64_t seed_;
  reconcile::test::World world_;
  schedule::Plan plan_;
  StepShape shape_;
  int layers_of_stage_ = 1;  // on average
  double sum_rate_ = 0;      // bytes per second, of the links between replicas
};

}  // namespace weir::sim
