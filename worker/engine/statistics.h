// SPDX-License-Identifier: Apache-2.0
// Statistics of the engine that any thread may read. The engine thread writes them after each op;
// the exposer and reports read them. A lock guards them, and nothing waits while holding it. Names
// and buckets of the metrics: worker/telemetry/README.md "Worker".
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "worker/protocol/messages.h"
#include "worker/protocol/step_part.h"
#include "worker/schedule/dispatch.h"
#include "worker/schedule/plan.h"
#include "worker/transport/collective.h"

namespace weir::engine {

// Histogram of durations. Bounds are first, first x factor, ...; the last count is +Inf.
template <std::size_t kBounds>
struct TimeHistogram {
  std::array<double, kBounds> bounds{};
  std::array<std::uint64_t, kBounds + 1> counts{};
  double sum = 0;

  TimeHistogram(double first, double factor) {
    for (double& bound : bounds) {
      bound = first;
      first *= factor;
    }
  }
  void add(double seconds) {
    std::size_t i = 0;
    while (i < kBounds && seconds > bounds[i]) ++i;
    ++counts[i];
    sum += seconds;
  }
};

using OpHistogram = TimeHistogram<16>;         // 1 ms x 2^i
using IterationHistogram = TimeHistogram<16>;  // 0.05 s x 1.6^i
using LatenessHistogram = TimeHistogram<12>;   // 20 us x 2^i
using SaveHistogram = TimeHistogram<14>;       // 0.05 s x 2^i

// How replicas were synchronised: an exact step, an average in a group, or a step of one replica
// alone.
enum class SyncKind : unsigned char { kExact, kPartial, kSingle };
struct SyncTotals {
  double wait_seconds = 0;
  std::int64_t rounds = 0;
};
// Sizes of the groups that this replica was in; the last count is +Inf.
struct GroupSizes {
  static constexpr std::array<int, 9> kBounds{1, 2, 3, 4, 6, 8, 12, 16, 32};
  std::array<std::uint64_t, kBounds.size() + 1> counts{};
  double sum = 0;
  void add(std::size_t members);
};

// Data that this rank received from another replica in exact sums of its stage, since the
// generation began. All senders share the time during which they sent, so bytes / busy is the
// bandwidth of the slower of the two nodes and not the rate of one of many flows.
struct SyncLink {
  int from = 0;  // replica
  std::string from_node, to_node;
  double bytes = 0;  // bytes that were timed (transport/train_meter.h)
  double busy_seconds = 0;
};
// A rank reports this many replicas, those behind it in a ring. So a few ranks measure each node,
// and the number of series does not grow with the square of the replicas.
constexpr int kMostSyncLinks = 4;

// The tensors that this rank sends to another stage in one direction.
struct SentTensors {
  double bits = 0;  // of a number on the wire; 0: none are sent
  bool rounded = false;
  // In the last step, of the blocks that were looked at; 0 unless they are rounded in blocks.
  double error_ratio = 0;   // root mean square of the errors over that of the numbers
  double zeroed_ratio = 0;  // of the numbers that are not 0, those that decode to 0
};
using Sent = std::array<SentTensors, 2>;  // by transport::Channel

struct Statistics {
  // The plan in force. stage < 0: idle or no plan yet.
  int replica = 0, stage = -1, stages = 0;
  std::uint32_t epoch = 0;
  int incarnation = 0, k = 0, cap = 0;
  schedule::Family family = schedule::Family::kKfkb;

  std::int64_t step = 0;  // completed steps
  // Completed steps that changed no parameter (StepRecord::skipped).
  std::int64_t skipped_steps = 0;
  double loss = std::numeric_limits<double>::quiet_NaN();  // of the last step; last stage only
  // Loss of the last validation; last stage only.
  double validation_loss = std::numeric_limits<double>::quiet_NaN();
  std::int64_t validation_step = -1;  // completed steps before the last validation; -1 = none yet
  OpHistogram validation{0.001, 2};   // duration of each validation
  IterationHistogram iteration{0.05, 1.6};
  OpHistogram forward{0.001, 2}, backward{0.001, 2}, optimizer{0.001, 2};
  OpHistogram weights{0.001, 2};  // split backwards; then `backward` is that of the input
  std::array<double, protocol::kStepParts> part_seconds{};
  double seconds_of(protocol::StepPart part) const {
    return part_seconds[static_cast<std::size_t>(part)];
  }
  Sent sent{};
  std::int64_t compressed_steps = 0;  // in which this rank sent or received a codec
  double fill_seconds = 0;  // waits for the first micro-batch, both ways, and for headers of steps
  double sync_seconds = 0;  // time waiting for the other replicas, of all stages
  std::int64_t sync_rounds = 0;              // steps synchronised with other replicas
  std::array<SyncTotals, 3> sync_by_kind{};  // the two fields above, by SyncKind
  GroupSizes group_sizes;                    // Partial
  double staleness = 0;  // Partial: steps ahead of the slowest replica at the last average
  // Exact: rate at which this rank sent while all replicas took part. Partial: bandwidth of the
  // replica's node, because an average is as slow as its slowest node. 0 = unknown.
  double sync_bytes_per_second = 0;
  std::vector<SyncLink> sync_links;  // of this generation; Exact only
  // Sent to other replicas for sums, on the wire, in this generation: all, and packed ones; and the
  // bytes of the sums that were packed.
  std::int64_t sync_bytes = 0, packed_sync_bytes = 0, packed_sync_payload = 0;
  // Sums and averages of this generation waited for tensors between stages on the same port.
  double sync_send_yield_seconds = 0, sync_read_yield_seconds = 0;
  int replicas = 1;
  int in_flight_peak = 0;  // since this stage was built
  // Kept from the forward to the end of the backward, since this stage was built.
  std::int64_t activation_bytes_peak = 0;
  std::int64_t samples = 0, tokens = 0;    // of completed steps; first stage only
  std::int64_t rejoins = 0;                // generations after the first
  LatenessHistogram lateness{0.00002, 2};  // emulated ops: time from the deadline to the wake-up
  std::int64_t overruns = 0;    // emulated ops whose real work took longer than the profile says
  SaveHistogram save{0.05, 2};  // from the copy until this rank's files are on disk
  std::int64_t checkpoint_step = -1;     // of the last complete checkpoint; -1 = unknown
  std::int64_t checkpoint_failures = 0;  // failed saves of the job
  // The copies that this rank keeps for a neighbor, set by the worker. -1: none are kept.
  std::int64_t copied_bytes = -1, copy_step = -1;
  // If they are kept: the host memory of those and of its own snapshots, and how long training has
  // stood still for the copies that snapshots are made of.
  std::int64_t snapshot_bytes = 0;
  double snapshot_wait_seconds = 0;
};

// One step of a rank.
struct StepRecord {
  std::int64_t step = 0;       // index of the step, from 0
  std::int64_t next_step = 1;  // completed steps after it; with Partial it may skip steps
  std::uint32_t epoch = 0;
  int replica = 0, stage = 0;
  bool first_stage = false, last_stage = false;
  bool skipped = false;  // the loss or gradient was not finite, so the parameters did not change
  // A save, a validation or another plan came into this step or directly before it.
  bool interrupted = false;
  int skipped_in_row = 0;  // skipped steps up to this one in this generation; set by the engine
  double loss = std::numeric_limits<double>::quiet_NaN();
  double step_seconds = 0;       // from the start of the first F to the end of the last B
  double iteration_seconds = 0;  // from the start of the step until its parameters are updated
  double compute_seconds = 0, idle_seconds = 0;
  // Part of compute_seconds; the second one includes both parts of split backwards.
  double forward_seconds = 0, backward_seconds = 0;
  double sync_seconds = 0;  // part of idle_seconds: waiting for the other replicas
  // Since the end of the step before; their sum is the time from there to the end of this one.
  std::array<std::chrono::nanoseconds, protocol::kStepParts> parts{};
  // In ops, by schedule::OpKind (pauses.h); `parts` has them as part of the ops.
  std::array<std::chrono::nanoseconds, schedule::kOpKinds> pauses{};
  std::uint32_t next_epoch = 0;  // all replicas change to it before the next step; 0 = none
  protocol::Verdict verdict;
  Sent sent{};
  bool compressed = false;  // a tensor that this rank sent or received was encoded
  bool codecs = false;      // the plan has some
  int samples = 0;
  int in_flight_peak = 0;
  int held_peak = 0;  // micro-batches from F to W with a split backward, else in_flight_peak
  std::int64_t graph_launches = 0;                 // forwards and backwards that ran as one graph
  std::vector<std::chrono::nanoseconds> lateness;  // of emulated ops; empty without emulation
  std::int64_t overruns = 0;
};

class Recorder {
 public:
  Statistics read() const;

  // again: the worker had a stage before. step: completed steps, from which it goes on.
  void stage_built(int replica, int stage, int stages, bool again, std::int64_t step);
  void stage_gone();
  void plan_adopted(const schedule::Plan& plan, int incarnation);
  void forward_done(std::chrono::nanoseconds took, int in_flight, std::int64_t activation_bytes);
  void backward_done(std::chrono::nanoseconds took, std::int64_t activation_bytes);
  void weights_done(std::chrono::nanoseconds took);
  void optimizer_done(std::chrono::nanoseconds took);
  void booked(protocol::StepPart part, std::chrono::nanoseconds took);
  void filled(std::chrono::nanoseconds took);  // while the pipeline filled or drained
  // Counts a step synchronised with all replicas, or with a group, after `waited`.
  void synchronized(const transport::CollectiveCounters& counters, std::chrono::nanoseconds waited);
  // Tells what synchronized() tells of the network, after an average.
  void yielded(const transport::CollectiveCounters& counters);
  void averaged(std::chrono::nanoseconds waited, std::size_t members, double staleness,
                double node_bytes_per_second);
  void validated(std::int64_t step, double loss, std::chrono::nanoseconds took);
  void step_done(const StepRecord& record, std::int64_t tokens_per_sample);
  void lateness(std::span<const std::chrono::nanoseconds> samples, std::int64_t overruns);
  void checkpoint_written(std::chrono::nanoseconds took);
  void checkpoint_complete(std::int64_t step);
  void checkpoint_failed();

 private:
  void count_round(SyncKind kind, std::chrono::nanoseconds waited);
  void name_sync_links(const schedule::Plan& plan);
  void add_yields(const transport::CollectiveCounters& counters);

  mutable std::mutex mutex_;  // guards statistics_
  Statistics statistics_;
};

}  // namespace weir::engine
