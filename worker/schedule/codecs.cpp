// SPDX-License-Identifier: Apache-2.0
#include "worker/schedule/codecs.h"

#include <algorithm>
#include <cstddef>

namespace weir::schedule {
namespace {

// Bits of a number in a block, besides the block's byte of scale; 0 = no blocks.
int bits_in_block(Codec codec) {
  switch (codec) {
    case Codec::kRaw:
    case Codec::kBf16:
      return 0;
    case Codec::kInt8:
      return 8;
    case Codec::kInt6:
      return 6;
  }
  return 0;
}

constexpr int kBitsOfByte = 8, kBf16Bytes = 2;

}  // namespace

bool Codecs::raw() const {
  const auto is_raw = [](Codec codec) { return codec == Codec::kRaw; };
  return std::ranges::all_of(forward, is_raw) && std::ranges::all_of(backward, is_raw);
}

Codec codec_of(const std::vector<Codec>& codecs, int boundary) {
  const auto i = static_cast<std::size_t>(boundary);
  return i < codecs.size() ? codecs[i] : Codec::kRaw;
}

std::int64_t encoded_bytes(Codec codec, std::int64_t count, int number_bytes) {
  if (codec == Codec::kRaw) return count * number_bytes;
  if (codec == Codec::kBf16) return count * kBf16Bytes;
  const std::int64_t blocks = (count + kCodecBlock - 1) / kCodecBlock;
  return blocks * (1 + kCodecBlock / kBitsOfByte * bits_in_block(codec));
}

std::int64_t wire_bytes(Codec codec, std::int64_t raw_bytes, int samples, int number_bytes) {
  if (codec == Codec::kRaw || samples < 1 || number_bytes < 1) return raw_bytes;
  return samples * encoded_bytes(codec, raw_bytes / samples / number_bytes, number_bytes);
}

double bits_of(Codec codec, int number_bytes) {
  return static_cast<double>(encoded_bytes(codec, kCodecBlock, number_bytes) * kBitsOfByte) /
         kCodecBlock;
}

const char* name(Codec codec) {
  switch (codec) {
    case Codec::kRaw:
      return "Raw";
    case Codec::kBf16:
      return "BF16";
    case Codec::kInt8:
      return "Int8";
    case Codec::kInt6:
      return "Int6";
  }
  return "?";
}

std::string describe(const Codecs& codecs) {
  std::string text;
  const std::size_t boundaries = std::max(codecs.forward.size(), codecs.backward.size());
  for (int b = 0; b < static_cast<int>(boundaries); ++b) {
    const Codec forward = codec_of(codecs.forward, b), backward = codec_of(codecs.backward, b);
    if (forward == Codec::kRaw && backward == Codec::kRaw) continue;
    if (!text.empty()) text += ", ";
    text += std::to_string(b) + "-" + std::to_string(b + 1) + ":" + name(forward);
    if (backward != forward) text += std::string("/") + name(backward);
  }
  return text;
}

}  // namespace weir::schedule
