// SPDX-License-Identifier: Apache-2.0
// The forms in which links carry the tensors between stages (worker/stage/README.md "Codecs").
// Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace weir::schedule {

// From the finest to the coarsest. kRaw changes no bit; the others round.
enum class Codec : unsigned char { kRaw, kBf16, kInt8, kInt6 };
inline constexpr std::array kCodecs = {Codec::kRaw, Codec::kBf16, Codec::kInt8, Codec::kInt6};

// By boundary, between stages s and s+1: of activations and of their gradients. Replicas have the
// same. Both are empty if all boundaries are raw.
struct Codecs {
  std::vector<Codec> forward, backward;
  bool raw() const;  // no boundary has another codec
  bool operator==(const Codecs&) const = default;
};
// The codec of a boundary in a list of Codecs.
Codec codec_of(const std::vector<Codec>& codecs, int boundary);

inline constexpr int kCodecBlock = 32;  // consecutive numbers of a sample that share a scale
// Bytes of `count` consecutive numbers of one sample on the wire, which raw have `number_bytes` (2
// or 4) bytes each.
std::int64_t encoded_bytes(Codec codec, std::int64_t count, int number_bytes);
// Bytes on the wire of a micro-batch whose tensor has `raw_bytes`.
std::int64_t wire_bytes(Codec codec, std::int64_t raw_bytes, int samples, int number_bytes);
// Bits of a number on the wire.
double bits_of(Codec codec, int number_bytes);

// "1-2:Int8", "0-1:Int8/Raw, 1-2:Int6" (forward/backward); "" = all raw.
std::string describe(const Codecs& codecs);
const char* name(Codec codec);  // "Raw" "BF16" "Int8" "Int6"

}  // namespace weir::schedule
