// SPDX-License-Identifier: Apache-2.0
// The reconcile threads: key from the queue -> Snapshot -> reconcile -> Executor. Two threads never
// work on one job. Only the leader runs them.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "operator/cache/snapshot.h"
#include "operator/controller/executor.h"
#include "operator/controller/job_memory.h"
#include "operator/controller/reconcile/reconcile.h"
#include "operator/controller/work_queue.h"
#include "worker/base/clock.h"

namespace weir::controller {

// Data of the control API about one job.
struct ControlView {
  std::optional<reconcile::MembersView> members;
  std::optional<reconcile::ReportView> report;
  std::vector<reconcile::ClaimView> claims;
};

struct ControllerOptions {
  int threads = 8;
  reconcile::Tunables tunables;
  // The functions are called from the reconcile threads.
  std::function<ControlView(const std::string& key, const std::string& job_uid)> control;
  std::function<estimator::Estimates(const std::string& key, const std::string& job_uid)> estimates;
  std::function<std::optional<SystemTime>()> leading_since;
  std::function<void(const std::string& key)> on_gone;  // the job does not exist
  // After each pass. result: "success", "error", "requeue" or "requeue_after", as in
  // controller-runtime's dashboards.
  std::function<void(const char* result, std::chrono::nanoseconds took)> observe;
  // After each pass that planned. kind: planned_kind; took: time of the pure decision alone.
  std::function<void(const char* kind, std::chrono::nanoseconds took)> planned;
  // When the workers report a plan as applied. took: time since its ConfigMap was written; tier:
  // trigger of the plan in lower case.
  std::function<void(const std::string& tier, std::chrono::nanoseconds took)> applied;
  // When a change has been judged for which a prediction could be told.
  std::function<void(const gate::Observation& observation)> judged;
  QueueCallbacks queue;
};
// All values of kind and tier: the names of the triggers in lower case, and "evaluate".
std::vector<std::string> plan_kinds();
// The kind of planning in a pass: the new plan's trigger in lower case; "regroup" if the planner
// searched another cut, but the plan stayed; "evaluate" if only the tiers were asked, and the plan
// stayed; "" = no planning.
std::string planned_kind(const reconcile::AdaptationState& before,
                         const reconcile::Outcome& outcome);

class Controller {
 public:
  Controller(Executor::Parts parts, ControllerOptions options);
  ~Controller();  // stops and joins the threads

  WorkQueue& queue() { return queue_; }
  void start();
  // Takes no new keys and waits for running passes until the deadline. False = some have not ended;
  // stop the client's requests, then call it again.
  bool stop(SteadyTime deadline);

  // One pass of one job. Public for tests.
  void reconcile_key(const std::string& key);
  // When a thread last ended a pass, or now if no job waits. For /healthz.
  SteadyTime last_alive() const;

 private:
  void run(std::stop_token stop);
  Executed pass(const std::string& key);
  std::shared_ptr<JobMemory> memory_of(const std::string& key, const std::string& uid);
  reconcile::Snapshot snapshot_of(const std::string& key, const cache::JobView& view,
                                  JobMemory& memory) const;
  void forget_old_answers(const api::PipelineJob& job, JobMemory& memory) const;
  void settle(const std::string& key, const Executed& executed);
  gate::Calibration calibration() const;
  void learn(const gate::Observation& observation);
  void report_applied(const cache::JobView& view, JobMemory& memory,
                      const reconcile::Outcome& outcome) const;

  Executor::Parts parts_;
  const ControllerOptions options_;
  Executor executor_;
  WorkQueue queue_;
  std::atomic<SteadyTime::rep> alive_{0};
  std::atomic<int> running_{0};

  mutable std::mutex memory_mutex_;  // guards memory_ and calibration_
  std::map<std::string, std::shared_ptr<JobMemory>> memory_;
  gate::Calibration calibration_;  // of all jobs, since this process leads
  std::vector<std::jthread> threads_;
};

}  // namespace weir::controller
