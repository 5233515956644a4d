// SPDX-License-Identifier: Apache-2.0
// The whole loop in virtual time: reconcile with all it calls (planner, tuner, tiers, sync policy),
// the estimator, an API server, a scheduler and kubelets that do no more than they must, simulated
// metrics and workers, and hazards. Each pass is checked against what must always hold.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/operator/controller/reconcile/world.h"
#include "tests/sim/agenda.h"
#include "tests/sim/hazards.h"
#include "tests/sim/loop_metrics.h"
#include "tests/sim/loop_workers.h"

namespace weir::sim {

struct LoopCase {
  JobShape shape;
  int spare_nodes = 1;
  bool replaces = false;  // tier replace is enabled
  bool regroups = true;
  bool compresses = false;
  std::string sync_mode = "Exact";
  double horizon = 3600;                // seconds
  std::optional<Hazards> hazards = {};  // unset: random ones
};
LoopCase random_case(std::uint64_t seed);

class WholeLoop {
 public:
  // mode: adaptation.mode; Off does nothing but restart what died.
  WholeLoop(const LoopCase& one, const std::string& mode, std::uint64_t seed);
  // Before run(): gives the world to who wants to hear of its passes.
  void listen(const std::function<void(reconcile::test::World&)>& listener) { listener(world_); }
  void run();

  // Samples trained by then, each 5 s.
  const std::vector<double>& work() const { return work_; }
  const std::vector<std::string>& wrong() const { return wrong_; }
  std::string history() const;  // what the operator did, a line each
  int changes(schedule::Trigger trigger) const;
  // All plans that were made, and when.
  const std::vector<schedule::Plan>& plans() const { return plans_; }
  const std::vector<double>& plan_times() const { return plan_times_; }
  const std::vector<api::Event>& events() const { return world_.events; }
  int partial_plans() const { return partial_plans_; }
  const PartialReplicas& partial() const { return workers_.partial(); }
  int replaced() const { return world_.event_count("WorkerReplaced"); }

  // What PlanOutcome told of a change, and what it truly gained in the steps that were judged.
  struct Outcome {
    double time = 0;
    double told = 0, truth = 0;
    std::string note;
  };
  const std::vector<Outcome>& outcomes() const { return outcomes_; }
  int degraded() const { return degraded_; }  // passes in which condition Degraded was True
  std::int64_t steps() const { return workers_.step(); }

  static constexpr double kSampled = 5;  // seconds between two entries of work()

 private:
  void settle();
  void before_pass(const reconcile::Outcome& outcome);
  void check_plan(const schedule::Plan& plan);
  void check_sync(const std::string& which, const schedule::Plan& plan);
  void check_deletion(const reconcile::DeletePod& action);
  void wake_after(std::chrono::milliseconds delay);
  void run_pods();
  void start(const std::string& uid);
  void kill(int worker);
  void report();
  void tick();
  bool blind() const;
  bool all_untimed() const;
  bool healthy(const std::string& uid) const;
  void fail(const std::string& what) { wrong_.push_back(at() + what); }
  std::string at() const;
  void note_outcome(const std::string& note);

  const LoopCase case_;
  const std::uint64_t seed_;
  const Hazards hazards_;
  Agenda agenda_;
  SimulatedWorkers workers_;
  SimulatedMetrics metrics_;
  reconcile::test::World world_;
  std::uint64_t wake_ = 0;
  std::set<std::string> scheduled_, running_;  // uids
  std::vector<schedule::Plan> plans_;          // all that were made
  std::vector<double> plan_times_;
  std::set<std::uint32_t> rollbacks_;  // revisions that were rollbacks
  int deaths_ = 0, partial_plans_ = 0;
  bool reports_soon_ = false, rolls_back_ = false;  // the latter: the pass under way
  double calm_since_ = 0;
  std::vector<double> work_;
  std::vector<std::string> wrong_, log_;
  std::vector<Outcome> outcomes_;
  int degraded_ = 0;
};

}  // namespace weir::sim
