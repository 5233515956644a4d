// SPDX-License-Identifier: Apache-2.0
// The input of a costing, and the memory between two of them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "operator/adaptation/costing/codec_seconds.h"
#include "operator/estimator/estimates.h"
#include "worker/schedule/caps.h"
#include "worker/schedule/plan.h"
#include "worker/schedule/validate.h"

namespace weir::costing {

// The times of a stage, for what is done with each.
inline constexpr std::array kStageTimes = {
    &schedule::StageTime::forward, &schedule::StageTime::backward,
    &schedule::StageTime::backward_input, &schedule::StageTime::backward_weights};

struct Replica {
  int micro_batches = 1;                    // share of the replica
  std::vector<schedule::StageTime> stages;  // f, b of one micro-batch on its devices
};
// The longest time of each stage over all replicas.
std::vector<schedule::StageTime> slowest_stages(const std::vector<Replica>& replicas);

// A stage may hold this with split backwards, in the replica with the least memory.
struct Room {
  schedule::StageMemory memory;
  std::int64_t limit_bytes = 0;            // 0 = unknown
  int most = schedule::kMostMicroBatches;  // micro-batches, after lack of memory
};

// A micro-batch size and what depends on it.
struct Size {
  int micro_batch_size = 1;                  // samples
  int micro_batches = 1;                     // smallest M of all replicas
  std::vector<schedule::StageTime> stages;   // f, b of one micro-batch in the slowest replica
  std::vector<std::int64_t> boundary_bytes;  // bytes of one micro-batch by boundary, S-1
  std::vector<int> cap_max;                  // limit by memory for each stage; empty = no limit
  std::vector<Room> rooms;                   // by stage; empty = unknown
};

// By stage, how long its sum over replicas goes on after the gradients of its last micro-batch are
// complete: with a whole backward, and with the weights of a split one. Empty = no sums.
struct SumsLeft {
  std::vector<std::chrono::nanoseconds> after_backward, after_weights;
};

struct Input {
  schedule::Schedule current;
  int micro_batches = 1;                    // smallest M of all replicas
  std::vector<schedule::StageTime> stages;  // f, b of one micro-batch in the slowest replica
  std::vector<Replica> replicas;            // empty = all replicas that `rates` names are equal
  double sync_seconds = 0;                  // exposed sync of a step
  double sync_lost_seconds = 0;             // part of it that links below their usual rate cost
  // Replicas do not wait for each other (sync.mode Partial). A step is then the time in which all
  // together train a global batch, each at its own pace.
  bool apart = false;
  std::vector<std::int64_t> boundary_bytes;  // bytes of one micro-batch by boundary, S-1
  CodecSeconds codec_seconds;  // `stages` and `replicas` have those of the plan in force
  std::vector<int> cap_max;    // limit by memory for each stage; empty = no limit
  std::vector<Room> rooms;     // by stage; empty = unknown
  SumsLeft sums;
  estimator::RateVectors rates;
  int used_scrapes = 16;                          // size of V, the newest ones of `rates`
  std::int64_t step = 0;                          // completed steps
  double measured_step_seconds = 0;               // mean over recent steps; 0 = unknown
  std::vector<Size> other_sizes;                  // empty = the spec fixes the size
  std::map<estimator::LinkKey, double> baseline;  // bytes per second; absent = unknown
};

struct State {
  // Correction factor, 0.8 .. 1.25, by micro-batch size: moving average of measured over predicted
  // step.
  std::map<int, double> correction;
  double loss_seconds = 0;      // after the last action of regroup or replace
  std::int64_t loss_step = -1;  // the loss is summed up to this step
  std::string baseline_inputs;  // inputs from which baseline_step was computed
  // Seconds of the current plan at the links' baselines, without sync and correction factor.
  double baseline_step = 0;
};

// Text of a schedule: "k=4 caps 16,12,8,4 Hint", with " mb=8" for more than one sample and " split
// held 16 postponed 0,1,2,3" for split backwards. It is the name of an offer of retune.
std::string describe(const schedule::Schedule& schedule);

}  // namespace weir::costing
