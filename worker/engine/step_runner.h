// SPDX-License-Identifier: Apache-2.0
// One step of a rank as it runs (step.h): its ops in step.cpp, sums over replicas and the verdict
// in step_sums.cpp, averages in step_average.cpp. Only these files include it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <vector>

#include "worker/engine/replica_sync.h"
#include "worker/engine/step.h"
#include "worker/engine/token_batch.h"

namespace weir::engine {

// A letter waits at most this long for a rank.
constexpr auto kStepSlice = std::chrono::milliseconds(20);

// for_others: false also where what the rank waits for depends on a replica that is lost.
bool goes_on(const StepParts& parts, bool for_others);

class StepRunner {
 public:
  StepRunner(const StepParts& parts, const StepOrder& order, std::stop_token stop);
  Result<StepRecord> run();
  StepEnd end() const { return end_; }

 private:
  Stopwatch& watch() const { return parts_.stopwatch; }
  bool averages() const { return parts_.replicas != nullptr && schedule::averages(order_.plan); }

  // step.cpp
  void begin();
  bool input_of_forward() const;
  bool input_of_backward() const;
  schedule::Ready what_is_ready() const;
  Status execute(const schedule::Op& op);
  static StepPart part_of(schedule::OpKind kind);
  void count(schedule::OpKind kind, std::chrono::nanoseconds took);
  Status forward(int micro_batch);
  Status backward(int micro_batch);
  Result<device::Buffer> take(transport::Channel channel);
  Status send(transport::Channel channel, device::Buffer tensor, StepPart op);
  Status weights(int micro_batch);
  Status wait(const schedule::Ready& ready);
  std::chrono::nanoseconds settle(bool forward);
  void update(const Verdict& verdict);
  StepRecord record(SteadyTime start);

  // step_sums.cpp
  std::vector<schedule::Ids> ids_by_replica() const;
  std::vector<double> losses() const;
  Result<Verdict> agree(SteadyTime start);
  void keep_share(SteadyTime start);
  void tell_of_the_last_sums(int micro_batch);
  void tell_of_sums_kept();
  Status join_ties();
  Status add_other_end(std::span<double> sums, std::uint32_t part, SteadyTime since);
  Status wait_for_sums();
  Status wait_for_cards();
  Status look_around(SteadyTime since, const char* missing, bool for_others = true);
  Status wait_for_collective(transport::Collective& collective, SteadyTime since,
                             const char* missing);
  std::chrono::nanoseconds waited(StepPart part);
  schedule::LayerRange layers() const;
  std::size_t layers_after() const;
  double loss() const;
  Result<Verdict> hear_verdict();
  Result<std::vector<std::byte>> wait_for_note(transport::Channel channel);

  // step_average.cpp
  Status average();
  bool begin_beside();
  Status finish_beside();
  Status drain();
  Result<bool> meet(StateAverage& average);
  Result<bool> give_up(StateAverage& average, const Error& error);

  const StepParts& parts_;
  const StepOrder& order_;
  std::stop_token stop_;
  const std::vector<schedule::Ids> to_compute_;  // by replica
  const std::vector<int> ids_;                   // that this replica computes
  const int micro_batches_;                      // their number
  const int step_micro_batches_;                 // over all replicas
  const int samples_;
  const std::int64_t graph_launches_before_;
  const schedule::Dispatcher dispatcher_;
  schedule::StageProgress progress_;
  TokenBatch tokens_;
  std::optional<ReplicaSync> sync_;
  std::vector<stage::TiedSum> tied_;
  std::set<std::size_t> tied_layers_;
  protocol::Grant grant_;  // Partial only: of this step
  std::optional<SteadyTime> first_start_;
  SteadyTime last_end_{};
  std::chrono::nanoseconds forward_{0}, backward_{0}, weights_{0}, update_{0}, coded_{0}, idle_{0},
      sync_wait_{0};
  // Times of the ops of this step, by OpKind, without loading data and codecs.
  std::array<std::vector<std::chrono::nanoseconds>, schedule::kOpKinds> op_times_;
  std::chrono::nanoseconds loaded_{0};  // data, in forwards
  int in_flight_at_start_ = 0, peak_ = 0, held_peak_ = 0;
  bool skipped_ = false;
  StepEnd end_;
};

}  // namespace weir::engine
