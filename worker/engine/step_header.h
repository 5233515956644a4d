// SPDX-License-Identifier: Apache-2.0
// The first message of a step on every forward channel: which step, which plan. Every stage reads
// it before its first op, so that all ranks change plan at the same step
// (worker/coordinator/README.md "Step header"). 32 bytes, little-endian: u32 magic, u32 job, u64
// step, u32 epoch, u16 incarnation, u16 M, u16 mb, u16 k, u32 crc32c of the 28 bytes before it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "worker/base/result.h"
#include "worker/schedule/plan.h"

namespace weir::engine {

constexpr std::size_t kStepHeaderBytes = 32;
using StepHeaderBytes = std::array<std::byte, kStepHeaderBytes>;

struct StepHeader {
  std::uint32_t job = 0;  // job_mark of the job's uid
  std::uint64_t step = 0;
  std::uint32_t epoch = 0;  // revision of the plan in force
  std::uint16_t incarnation = 0;
  // 0: does not fit into 16 bits, take it from the plan
  std::uint16_t micro_batches = 0, micro_batch_size = 0, k = 0;
  bool operator==(const StepHeader&) const = default;
};

std::uint32_t job_mark(std::string_view job_uid);

StepHeader make_step_header(std::string_view job_uid, std::int64_t step, const schedule::Plan& plan,
                            int replica, int incarnation);
StepHeaderBytes encode(const StepHeader& header);
// kInvalid: wrong size, magic or checksum.
Result<StepHeader> decode_step_header(std::span<const std::byte> bytes);

// What the receiver expects. kConflict names the first field that differs: another job, step,
// incarnation, or numbers that contradict the plan. The epoch is the caller's business: it finds
// the plan by it.
Status check_step_header(const StepHeader& header, const StepHeader& expected);

}  // namespace weir::engine
