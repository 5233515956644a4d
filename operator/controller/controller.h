// SPDX-License-Identifier: Apache-2.0
// The reconcile threads: a key from the queue -> Snapshot -> reconcile -> Executor. One job is
// never in two threads. Only the leader runs it.
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

// What the control API knows of one job.
struct ControlView {
  std::optional<reconcile::MembersView> members;
  std::optional<reconcile::ReportView> report;
};

struct ControllerOptions {
  int threads = 8;
  reconcile::Tunables tunables;
  // All of these are called from the reconcile threads.
  std::function<ControlView(const std::string& key, const std::string& job_uid)> control;
  std::function<estimator::Estimates(const std::string& key, const std::string& job_uid)> estimates;
  std::function<std::optional<SystemTime>()> leading_since;
  std::function<void(const std::string& key)> on_gone;  // the job is not there (any more)
  // One pass: result "success", "error", "requeue" or "requeue_after", as dashboards know them.
  std::function<void(const char* result, std::chrono::nanoseconds took)> observe;
  // A pass that planned: planned_kind and the time of the pure decision alone.
  std::function<void(const char* kind, std::chrono::nanoseconds took)> planned;
  // From a plan's ConfigMap to the report that it runs; tier is its trigger in lower case.
  std::function<void(const std::string& tier, std::chrono::nanoseconds took)> applied;
  QueueCallbacks queue;
};
// Lower case names of all triggers and "evaluate": the label values of the two above.
std::vector<std::string> plan_kinds();
// What a pass with these actions planned: the new plan's trigger in lower case; "regroup" also when
// the planner was asked for another cut and the plan stayed, "evaluate" when only the tuner looked
// and kept it; "" = nothing.
std::string planned_kind(const reconcile::AdaptationState& before,
                         const std::vector<reconcile::Action>& actions);

class Controller {
 public:
  Controller(Executor::Parts parts, ControllerOptions options);
  ~Controller();  // stops, joins

  WorkQueue& queue() { return queue_; }
  void start();
  // No new keys; running passes may end until the deadline. False: some did not; stop the client's
  // requests, then call again.
  bool stop(SteadyTime deadline);

  // One pass of one job, as the threads do it; public for tests.
  void reconcile_key(const std::string& key);
  // When a thread last finished a pass or found nothing to do, for /healthz.
  SteadyTime last_alive() const;

 private:
  void run(std::stop_token stop);
  Executed pass(const std::string& key);
  std::shared_ptr<JobMemory> memory_of(const std::string& key, const std::string& uid);
  reconcile::Snapshot snapshot_of(const std::string& key, const cache::JobView& view,
                                  JobMemory& memory) const;
  void forget_old_answers(const api::PipelineJob& job, JobMemory& memory) const;
  void settle(const std::string& key, const Executed& executed);
  void tell_applied(const cache::JobView& view, JobMemory& memory,
                    const std::vector<reconcile::Action>& actions) const;

  Executor::Parts parts_;
  const ControllerOptions options_;
  Executor executor_;
  WorkQueue queue_;
  std::atomic<SteadyTime::rep> alive_{0};
  std::atomic<int> running_{0};

  mutable std::mutex memory_mutex_;  // guards memory_
  std::map<std::string, std::shared_ptr<JobMemory>> memory_;
  std::vector<std::jthread> threads_;
};

}  // namespace weir::controller
