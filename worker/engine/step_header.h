// SPDX-License-Identifier: Apache-2.0
// The first message of a step on every forward channel: it names the step and the plan. Every stage
// reads it before its first op, so that all ranks change the plan at the same step
// (worker/coordinator/README.md "Step header"). 32 bytes, little-endian: u32 magic, u32 job, u64
// step, u32 epoch, u16 incarnation, u16 M, u16 mb, u8 k, u8 codecs of the boundary (activations in
// the low 4 bits, gradients in the high ones), u32 crc32c of the first 28 bytes.
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
  // 0 if the number does not fit; the plan has it.
  std::uint16_t micro_batches = 0, micro_batch_size = 0;
  std::uint8_t k = 0;
  // The codecs of the boundary that the header crosses. Sizes of messages do not tell all ends
  // apart that disagree: 33 numbers have as many bytes in BF16 as in Int8.
  schedule::Codec forward = schedule::Codec::kRaw, backward = schedule::Codec::kRaw;
  bool operator==(const StepHeader&) const = default;
};

std::uint32_t job_mark(std::string_view job_uid);

// boundary: the one between stages `boundary` and `boundary` + 1.
StepHeader make_step_header(std::string_view job_uid, std::int64_t step, const schedule::Plan& plan,
                            int replica, int boundary, int incarnation);
StepHeaderBytes encode(const StepHeader& header);
// kInvalid: wrong size, magic or checksum, or a codec that this worker does not know.
Result<StepHeader> decode_step_header(std::span<const std::byte> bytes);

// Compares with the header that the receiver expects. kConflict names the first field that differs:
// another job, step or incarnation, or codecs or numbers that contradict the plan. The caller
// checks the epoch, by which it finds the plan.
Status check_step_header(const StepHeader& header, const StepHeader& expected);

}  // namespace weir::engine
