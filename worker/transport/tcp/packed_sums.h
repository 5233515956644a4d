// SPDX-License-Identifier: Apache-2.0
// Sums of gradients in fewer bytes. Their terms are multiples of 2^-44 (stage/ops/exact_sum.h), and
// most are small, so a block of 128 values is one byte w, then w bytes a value: the value times
// 2^44 as a little-endian two's complement. w = 0: all are zero; w = 8: the doubles as they are,
// because one of the block is no such multiple, or is 2^11 or more, not finite or minus zero. What
// comes out has the bits that went in. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "worker/base/result.h"

namespace weir::transport::tcp {

constexpr std::size_t kPackedBlock = 128;  // values

// Bytes that pack_sums() may write to for so many values.
std::size_t packing_room(std::size_t count);

// Returns the length of what it has written to `room`; 0 if that would not be shorter than the
// doubles.
std::size_t pack_sums(std::span<const double> sums, std::span<std::byte> room);

// kInvalid: `packed` is not what pack_sums() makes of as many values.
Status unpack_sums(std::span<const std::byte> packed, std::span<double> sums);

enum class SumEncoding : unsigned char { kAuto, kRaw, kPacked };

// Whether to pack: always, never, or while the network takes longer than packing. Both ends
// together need about 4 ns a value.
class PackingRule {
 public:
  explicit PackingRule(SumEncoding encoding) : encoding_(encoding) {}
  bool packs() const {
    return encoding_ == SumEncoding::kPacked || (encoding_ == SumEncoding::kAuto && slow_);
  }
  // Bytes that one member has sent, and the time in which all took part.
  void measured(std::int64_t bytes, std::chrono::nanoseconds busy);

 private:
  const SumEncoding encoding_;
  bool slow_ = false;
  std::int64_t bytes_ = 0;  // since the last judgement
  std::chrono::nanoseconds busy_{0};
};

}  // namespace weir::transport::tcp
