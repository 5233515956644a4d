// SPDX-License-Identifier: Apache-2.0
// The coordinator of a job, in the worker of index 0: members of port 7070, start-up until the
// first plan (MEASURE, PROBE, register), plan switches (PREPARE/READY/COMMIT/GO), reports. Where
// plans come from is a PlanSource: the operator's control API (operator_line.h) or a file. Own
// thread, never blocks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "worker/base/result.h"
#include "worker/coordinator/checkpoints.h"
#include "worker/protocol/messages.h"

namespace weir::coordinator {

// Both directions are asynchronous: on_plan and on_gone are called from the source's own thread.
class PlanSource {
 public:
  struct Hooks {
    std::function<void(schedule::Plan)> on_plan;      // a revision above the last one
    std::function<void()> on_register_wanted;         // 428: a new leader wants /register again
    std::function<void(std::string reason)> on_gone;  // 410: the job is deleted, end without saving
    // A document that cannot be read (unknown apiVersion): reported as Refused.
    std::function<void(std::uint32_t revision, std::string reason)> on_bad_plan;
  };
  virtual ~PlanSource() = default;  // stops, joins
  virtual void start(Hooks hooks) = 0;
  virtual void register_members(
      protocol::Register body) = 0;                // latest wins; retried until accepted
  virtual void report(protocol::Report body) = 0;  // latest wins; lost ones do no harm
  virtual void have(std::uint32_t revision) = 0;   // highest revision the coordinator knows
  // It has lately heard from those that make plans. Any thread.
  virtual bool in_touch() const { return false; }
  // Waits until the last report has been accepted, or the deadline: for the end of training.
  virtual void flush(std::chrono::steady_clock::time_point deadline) {
    static_cast<void>(deadline);
  }
};

// Re-reads a plan document each 200 ms; a higher revision is a new plan. For tests, benches and
// training without a cluster. A bad file is logged once per change and ignored. Ranks without ip,
// or no ranks at all (stage s = worker s), are filled in from members.
std::unique_ptr<PlanSource> make_file_source(const std::string& path);

struct Options {
  std::string listen_ip;              // "" = all
  int port = protocol::kControlPort;  // 0 = any free one
  std::string job_uid;
  int workers = 1;  // required count (WEIR_WORKERS)
  protocol::ModelInfo model;
  Settings settings;  // of worker 0: a rank whose HELLO names another value is refused
  std::int64_t total_steps = 0;
  bool measure = true;  // profile source Measure; false: register without profile
  std::vector<int> measure_samples{1, 2, 4};
  int measure_rounds = 5;
  // READY_STATE and the first step of a plan; a step may take as long
  // (spec.progressDeadlineSeconds).
  std::chrono::nanoseconds progress_deadline{std::chrono::seconds(1800)};
  bool probe = false;  // PROBE of index neighbours before the first /register; unprobed links
                       // count as 1.25e9 B/s
  CheckpointPolicy checkpoints;
  std::chrono::milliseconds report_interval{5000};
  std::chrono::seconds dead_after{30};
};

class Coordinator {
 public:
  virtual ~Coordinator() = default;  // stops, joins
  virtual int port() const = 0;
  virtual bool in_touch() const = 0;  // of its PlanSource
  // The end of training: waits until all other members have said LEAVE or are gone, then sends the
  // last report; at most until the deadline. Blocks.
  virtual void finish(std::chrono::steady_clock::time_point deadline) = 0;
};

// job_key: raw, for the handshake of ranks. kUnavailable "control port 7070: address already in
// use".
Result<std::unique_ptr<Coordinator>> start_coordinator(const Options& options, std::string job_key,
                                                       std::unique_ptr<PlanSource> source,
                                                       std::function<void(std::string)> on_gone);

}  // namespace weir::coordinator
