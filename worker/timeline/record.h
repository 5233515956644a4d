// SPDX-License-Identifier: Apache-2.0
// The events of a rank, as its flight recorder keeps them. Times are nanoseconds of the
// rank's own steady clock. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/base/result.h"

namespace weir::timeline {

enum class EventKind : std::uint8_t {
  kPart,      // an interval of the engine thread; detail: protocol::StepPart
  kOp,        // an op with its data and codecs, which are parts of their own; detail: OpKind
  kReceived,  // a tensor was on its way: first byte, last byte; detail: Direction
  kSent,      // a tensor was handed over, and acknowledged; detail: Direction
  kPlan,      // a plan was adopted; extra: its revision
};
inline constexpr int kEventKinds = 5;

enum class Direction : std::uint8_t { kForward, kBackward };  // activations, gradients

inline constexpr std::uint16_t kNoMicroBatch = 0xFFFF;

struct Event {
  std::int64_t begin = 0, end = 0;
  std::int64_t extra = 0;                     // kSent: nanoseconds without a credit
  std::uint32_t step = 0;                     // completed before it
  std::uint16_t micro_batch = kNoMicroBatch;  // of the replica, from 0
  EventKind kind = EventKind::kPart;
  std::uint8_t detail = 0;
  bool operator==(const Event&) const = default;
};

// The events of one rank while it has one place, in the order in which they were written down.
struct RankRecord {
  std::string job, pod, node;
  int replica = 0, replicas = 1, stage = 0, stages = 1;
  std::uint32_t revision = 0;      // of the plan at the last event
  std::int64_t wall_less_own = 0;  // wall clock minus own clock, nanoseconds; wrong by seconds
  std::vector<Event> events;
  bool operator==(const RankRecord&) const = default;
};

// Nanoseconds: no time of a steady clock is farther from 0 (18 years), and no difference between
// the wall clock and it (73 years). Sums and differences of a few of them do not overflow.
inline constexpr std::int64_t kLongestTime = std::int64_t{1} << 59U;
inline constexpr std::int64_t kMostWallLessOwn = std::int64_t{1} << 61U;

inline constexpr int kMostReplicas = 4096, kMostStages = 4096;

// kInvalid: records of several jobs, of other numbers of replicas or stages, or two of one place.
Status belong_together(std::span<const RankRecord> records);

}  // namespace weir::timeline
