// SPDX-License-Identifier: Apache-2.0
// The coordinator of a job, in the worker that the operator names (worker/protocol/README.md
// "Terms"): members of port 7070, start-up until the first plan (MEASURE, PROBE, register), plan
// switches (PREPARE, READY, COMMIT, GO) and reports. Plans come from a PlanSource: the operator's
// control API (operator_line.h) or a file. Has a thread of its own and never blocks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "worker/base/clock.h"
#include "worker/base/result.h"
#include "worker/control/link.h"
#include "worker/coordinator/checkpoints.h"
#include "worker/coordinator/step_totals.h"
#include "worker/protocol/messages.h"

namespace weir::coordinator {

// Both directions are asynchronous. The callbacks run on a thread of the source.
class PlanSource {
 public:
  struct Callbacks {
    std::function<void(schedule::Plan)> on_plan;      // a revision above the last one
    std::function<void()> on_register_wanted;         // 428: a new leader asks for /register again
    std::function<void(std::string reason)> on_gone;  // 410: the job is deleted; end without saving
    // A document that cannot be read, e.g. with an unknown apiVersion. It is reported as Refused.
    std::function<void(std::uint32_t revision, std::string reason)> on_bad_plan;
    // A user wants to see steps. Comes again with each report until the trace is there.
    std::function<void(protocol::TraceWanted)> on_trace_wanted = {};
    // 421: another worker coordinates in this term. A lower one is an answer from the past.
    std::function<void(std::int64_t term)> on_moved = {};
  };
  virtual ~PlanSource() = default;  // stops and joins its threads
  virtual void start(Callbacks callbacks) = 0;
  // Retried until accepted; a later call replaces an earlier one.
  virtual void register_members(protocol::Register body) = 0;
  // A later call replaces an earlier one; lost reports do no harm.
  virtual void report(protocol::Report body) = 0;
  // The records of a trace (worker/timeline/codec.h), at most kMaxTraceParts x kMaxTracePartBytes.
  // Tried a few times; a later call replaces an earlier one.
  virtual void post_trace(std::string id, std::string octets) {
    static_cast<void>(id);
    static_cast<void>(octets);
  }
  // A dump of the flight recorders, and why it was made: for users, beside traces. Likewise.
  virtual void post_flight(const protocol::FlightDump& dump) { static_cast<void>(dump); }
  virtual void have(std::uint32_t revision) = 0;  // highest revision that the coordinator knows
  // True if the source has lately had an answer from the operator. Any thread.
  virtual bool in_touch() const { return false; }
  // Waits until the last report has been accepted, or until the deadline. Used at the end of
  // training.
  virtual void flush(std::chrono::steady_clock::time_point deadline) {
    static_cast<void>(deadline);
  }
};

// Reads a plan document every 200 ms; a higher revision is a new plan. For tests, benches and
// training without a cluster. A bad file is logged once per change and ignored. If ranks are
// missing (stage s = worker s) or have no ip, they are filled in from the members.
std::unique_ptr<PlanSource> make_file_source(const std::string& path);

struct Options {
  std::string listen_ip;              // "" = all addresses
  int port = protocol::kControlPort;  // 0 = any free port
  std::string job_uid;
  int workers = 1;  // required number (WEIR_WORKERS)
  protocol::ModelInfo model;
  Settings settings;  // of worker 0: a rank whose HELLO has other values is refused
  std::int64_t total_steps = 0;
  bool measure = true;  // profile source Measure; false: register without a profile
  std::vector<int> measure_samples{1, 2, 4};
  int measure_rounds = 5;
  // Limit for READY_STATE and for the first step of a plan, and for any step
  // (spec.progressDeadlineSeconds).
  std::chrono::nanoseconds progress_deadline{std::chrono::seconds(1800)};
  // PROBE links of index neighbours before the first /register; otherwise they count as 1.25e9 B/s.
  bool probe = false;
  CheckpointPolicy checkpoints;
  SnapshotPolicy snapshots;
  std::chrono::milliseconds report_interval{5000};
  std::chrono::seconds dead_after{30};
  std::int64_t term = protocol::kFirstTerm;  // of this coordinator
  std::string lost_pod_uid;  // coordinated before it; "" = unknown, or this process begins anew
  std::function<void(std::int64_t term)> on_moved;  // PlanSource::Callbacks; may be empty
  // Takes each completed step, on the coordinator's thread; must not block. May be empty.
  std::function<void(const StepTotal&)> on_step;
  std::function<void(const protocol::Validation&)> on_validation;  // likewise
  // Takes records of all ranks (worker/timeline/codec.h) after a slow step, a stall or a loss
  // (observer.h); likewise.
  std::function<void(std::int64_t step, const std::string& octets)> on_dump;
};

class Coordinator {
 public:
  virtual ~Coordinator() = default;  // stops and joins its threads
  virtual int port() const = 0;
  virtual bool in_touch() const = 0;  // PlanSource::in_touch
  // End of training: waits until all other members have sent LEAVE or are gone, then sends the last
  // report. Blocks at most until the deadline.
  virtual void finish(std::chrono::steady_clock::time_point deadline) = 0;
  // Sends a report that tells of an export. Blocks at most until the deadline.
  virtual void exported(const protocol::Exported& what,
                        std::chrono::steady_clock::time_point deadline) = 0;
};

// Time and sessions of a coordinator, which tests play.
struct Ground {
  const Clock& clock;
  std::function<Result<std::unique_ptr<control::RankServer>>(const control::RankServerOptions&,
                                                             control::RankServerEvents)>
      make_server = control::make_rank_server;
};

// job_key: raw bytes, for the handshake of ranks. The clock outlives the coordinator. The error is
// kUnavailable, e.g. "control port 7070: address already in use".
Result<std::unique_ptr<Coordinator>> start_coordinator(const Options& options, std::string job_key,
                                                       std::unique_ptr<PlanSource> source,
                                                       std::function<void(std::string)> on_gone,
                                                       const Ground& ground);

}  // namespace weir::coordinator
