// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/statistics.h"

#include <algorithm>
#include <map>
#include <string>

#include "worker/base/units.h"

namespace weir::engine {

using std::chrono::nanoseconds;

Statistics Recorder::read() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

void Recorder::stage_built(int replica, int stage, int stages, bool again, std::int64_t step) {
  const std::lock_guard lock(mutex_);
  Statistics fresh;
  fresh.replica = replica;
  fresh.stage = stage;
  fresh.stages = stages;
  fresh.step = step;
  // Series of the process continue; those with the label `stage` start at 0.
  fresh.iteration = statistics_.iteration;
  fresh.samples = statistics_.samples;
  fresh.tokens = statistics_.tokens;
  fresh.lateness = statistics_.lateness;
  fresh.overruns = statistics_.overruns;
  fresh.skipped_steps = statistics_.skipped_steps;
  fresh.compressed_steps = statistics_.compressed_steps;
  if (stage == stages - 1) {  // only there a validation ends
    fresh.validation_step = statistics_.validation_step;
    fresh.validation_loss = statistics_.validation_loss;
    fresh.validation = statistics_.validation;
  }
  fresh.sync_seconds = statistics_.sync_seconds;
  fresh.sync_rounds = statistics_.sync_rounds;
  fresh.sync_by_kind = statistics_.sync_by_kind;
  fresh.group_sizes = statistics_.group_sizes;
  fresh.rejoins = statistics_.rejoins + (again ? 1 : 0);
  statistics_ = fresh;
}

void Recorder::stage_gone() {
  const std::lock_guard lock(mutex_);
  statistics_.stage = -1;
  statistics_.k = statistics_.cap = 0;
}

void Recorder::plan_adopted(const schedule::Plan& plan, int incarnation) {
  const std::lock_guard lock(mutex_);
  statistics_.epoch = plan.revision;
  statistics_.incarnation = incarnation;
  statistics_.k = plan.schedule.k;
  statistics_.family = plan.schedule.family;
  statistics_.replicas = plan.replica_count();
  if (statistics_.stage < 0) return;
  statistics_.cap = plan.schedule.caps[static_cast<std::size_t>(statistics_.stage)];
  if (statistics_.sync_links.empty()) name_sync_links(plan);
}

// Ranks and nodes do not change within a generation.
void Recorder::name_sync_links(const schedule::Plan& plan) {
  std::map<int, std::string> nodes;  // node of this stage by replica
  for (const auto& rank : plan.ranks) {
    if (rank.stage == statistics_.stage) nodes[rank.replica] = rank.node;
  }
  const int replicas = plan.replica_count();
  for (int i = 1; i < replicas && i <= kMostSyncLinks; ++i) {
    const int from = (statistics_.replica + i) % replicas;
    statistics_.sync_links.push_back(
        {.from = from, .from_node = nodes[from], .to_node = nodes[statistics_.replica]});
  }
}

void Recorder::forward_done(nanoseconds took, int in_flight, std::int64_t activation_bytes) {
  const std::lock_guard lock(mutex_);
  statistics_.forward.add(to_seconds(took));
  statistics_.in_flight_peak = std::max(statistics_.in_flight_peak, in_flight);
  statistics_.activation_bytes_peak = std::max(statistics_.activation_bytes_peak, activation_bytes);
}

void Recorder::backward_done(nanoseconds took, std::int64_t activation_bytes) {
  const std::lock_guard lock(mutex_);
  statistics_.backward.add(to_seconds(took));
  statistics_.activation_bytes_peak = std::max(statistics_.activation_bytes_peak, activation_bytes);
}

void Recorder::weights_done(nanoseconds took) {
  const std::lock_guard lock(mutex_);
  statistics_.weights.add(to_seconds(took));
}

void Recorder::optimizer_done(nanoseconds took) {
  const std::lock_guard lock(mutex_);
  statistics_.optimizer.add(to_seconds(took));
}

void Recorder::booked(protocol::StepPart part, nanoseconds took) {
  const std::lock_guard lock(mutex_);
  statistics_.part_seconds[static_cast<std::size_t>(part)] += to_seconds(took);
  const bool for_replicas =
      part == protocol::StepPart::kSum || part == protocol::StepPart::kAverage;
  if (for_replicas) statistics_.sync_seconds += to_seconds(took);
}

void Recorder::filled(nanoseconds took) {
  const std::lock_guard lock(mutex_);
  statistics_.fill_seconds += to_seconds(took);
}

void GroupSizes::add(std::size_t members) {
  std::size_t i = 0;
  while (i < kBounds.size() && members > static_cast<std::size_t>(kBounds[i])) ++i;
  ++counts[i];
  sum += static_cast<double>(members);
}

void Recorder::synchronized(const transport::CollectiveCounters& counters, nanoseconds waited) {
  const std::lock_guard lock(mutex_);
  count_round(SyncKind::kExact, waited);
  const double busy = to_seconds(counters.busy);
  if (busy > 0) {
    statistics_.sync_bytes_per_second = static_cast<double>(counters.bytes_sent) / busy;
  }
  statistics_.sync_bytes = counters.bytes_sent;
  statistics_.packed_sync_bytes = counters.packed_bytes;
  statistics_.packed_sync_payload = counters.packed_payload;
  add_yields(counters);
  const auto senders = static_cast<double>(counters.received.size());
  for (SyncLink& link : statistics_.sync_links) {
    const auto from = counters.received.find(link.from);
    if (from == counters.received.end()) continue;
    // A counter must not fall, but the timed bytes of a train of frames may
    // (transport/train_meter.h).
    link.bytes = std::max(link.bytes, static_cast<double>(from->second.counted_bytes));
    link.busy_seconds = std::max(link.busy_seconds, to_seconds(from->second.busy) / senders);
  }
}

void Recorder::yielded(const transport::CollectiveCounters& counters) {
  const std::lock_guard lock(mutex_);
  add_yields(counters);
}

void Recorder::add_yields(const transport::CollectiveCounters& counters) {
  statistics_.sync_send_yield_seconds = to_seconds(counters.waited_to_send);
  statistics_.sync_read_yield_seconds = to_seconds(counters.waited_to_read);
}

void Recorder::averaged(nanoseconds waited, std::size_t members, double staleness,
                        double node_bytes_per_second) {
  const std::lock_guard lock(mutex_);
  count_round(members > 1 ? SyncKind::kPartial : SyncKind::kSingle, waited);
  statistics_.group_sizes.add(members);
  statistics_.staleness = staleness;
  statistics_.sync_bytes_per_second = node_bytes_per_second;
}

void Recorder::count_round(SyncKind kind, nanoseconds waited) {
  ++statistics_.sync_rounds;
  SyncTotals& totals = statistics_.sync_by_kind[static_cast<std::size_t>(kind)];
  ++totals.rounds;
  totals.wait_seconds += to_seconds(waited);
}

void Recorder::validated(std::int64_t step, double loss, nanoseconds took) {
  const std::lock_guard lock(mutex_);
  statistics_.validation_step = step;
  statistics_.validation_loss = loss;
  statistics_.validation.add(to_seconds(took));
}

void Recorder::step_done(const StepRecord& record, std::int64_t tokens_per_sample) {
  const std::lock_guard lock(mutex_);
  statistics_.step = record.next_step;
  statistics_.loss = record.loss;
  statistics_.sent = record.sent;
  if (record.compressed) ++statistics_.compressed_steps;
  if (record.skipped) ++statistics_.skipped_steps;
  statistics_.iteration.add(record.iteration_seconds);
  if (!record.first_stage) return;
  statistics_.samples += record.samples;
  statistics_.tokens += record.samples * tokens_per_sample;
}

void Recorder::lateness(std::span<const nanoseconds> samples, std::int64_t overruns) {
  const std::lock_guard lock(mutex_);
  for (const nanoseconds late : samples) statistics_.lateness.add(to_seconds(late));
  statistics_.overruns += overruns;
}

void Recorder::checkpoint_written(std::chrono::nanoseconds took) {
  const std::lock_guard lock(mutex_);
  statistics_.save.add(to_seconds(took));
}

void Recorder::checkpoint_complete(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  statistics_.checkpoint_step = step;
}

void Recorder::checkpoint_failed() {
  const std::lock_guard lock(mutex_);
  ++statistics_.checkpoint_failures;
}

}  // namespace weir::engine
