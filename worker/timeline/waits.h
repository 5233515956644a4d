// SPDX-License-Identifier: Apache-2.0
// The chain of waits when nothing moves: from any waiting rank "waits for" is followed until a rank
// computes, does not answer, or closes a circle. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/base/result.h"
#include "worker/protocol/messages.h"
#include "worker/protocol/step_part.h"
#include "worker/schedule/plan.h"
#include "worker/timeline/record.h"

namespace weir::timeline {

// A rank of a plan at one moment.
struct Doing {
  int replica = 0, stage = 0;
  std::string node;
  bool silent = true;  // it has not answered, so nothing below is known
  protocol::StepPart part = protocol::StepPart::kOther;
  std::uint16_t micro_batch = kNoMicroBatch;
  std::chrono::nanoseconds since{0};  // how long it has been in this part
};

// A rank for each place of `ranks`, in that order. The part under way is the last event of its
// record, which ends at the moment at which the rank was asked (StepsWanted::open); without a
// record of its place the rank is silent.
std::vector<Doing> doing_of(std::vector<Doing> ranks, std::span<const RankRecord> records);

// Where all chains end.
struct Waits {
  int waiting = 0;  // ranks that wait for those in `ranks`
  // Without waiting ones: ranks that wait for each other, in a circle; or the one that is longest
  // in its part.
  std::vector<Doing> ranks;
};
// Several ends: one that does not answer, else the one that most ranks wait for.
Waits chain_of_waits(std::span<const Doing> ranks);

// One line: "7 ranks wait for rank 2 (replica 0, stage 2, n3), in backward of micro-batch 7 for
// 63 s". Ranks are numbered as `kubectl weir top` does, replica by replica. stages: of a replica. A
// time of 0 is not told.
std::string text_of(const Waits& waits, int stages);

// To the operator, which trusts no text and no place. kInvalid: a rank is not of this plan, or
// there is none.
protocol::Stall stall_of(const Waits& waits, double seconds);
Result<Waits> waits_of(const protocol::Stall& stall, const schedule::Plan& plan);

// Why a step took longer than the one before it, of all ranks together: the part that is no wait
// for others and has grown most, e.g. "save on rank 3 (replica 0, stage 3, n4), 2.1 s more".
// Empty: none has grown by a tenth of a second, or the records lack one of the steps.
std::string what_grew(std::span<const RankRecord> records, std::uint32_t step);

}  // namespace weir::timeline
