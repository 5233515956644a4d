// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/packed_sums.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "worker/base/check.h"
#include "worker/base/packed_below.h"

namespace weir::transport::tcp {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr double kUnit = 0x1p-44, kPerUnit = 0x1p44;
constexpr double kMost = 0x1p55;  // of a value in units: seven bytes hold it
constexpr unsigned kWhole = 8;    // bytes of a double

constexpr std::int64_t kJudged = std::int64_t{1} << 20;  // bytes that are judged together
constexpr double kHysteresis = 0.2;                      // of kPackedBelow

struct Block {
  std::array<std::int64_t, kPackedBlock> units{};
  unsigned width = 0;  // bytes a value
};

// The units of values that are all below 2^51 units; false if one is not, or is no multiple. Adding
// 1.5 * 2^52 leaves the nearest integer in the lower bits of the sum, which vectors of any
// processor can do; the conversion to 64 bits needs AVX-512.
bool small_units(std::span<const double> sums, Block& block, std::uint64_t& bits) {
  constexpr double kShift = 0x1.8p52;
  std::uint64_t differs = 0, magnitudes = 0, any = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double shifted = sums[i] * kPerUnit + kShift;
    const auto unit = static_cast<std::int64_t>(std::bit_cast<std::uint64_t>(shifted) -
                                                std::bit_cast<std::uint64_t>(kShift));
    block.units[i] = unit;
    any |= static_cast<std::uint64_t>(unit);
    magnitudes |= static_cast<std::uint64_t>(unit ^ -(unit < 0 ? 1 : 0));
    differs |= std::bit_cast<std::uint64_t>((shifted - kShift) * kUnit) ^
               std::bit_cast<std::uint64_t>(sums[i]);
  }
  bits = any == 0 ? 0 : 2 * magnitudes + 1;  // with a bit for the sign
  return differs == 0 && magnitudes < (std::uint64_t{1} << 51U);
}

bool any_units(std::span<const double> sums, Block& block, std::uint64_t& bits) {
  std::uint64_t differs = 0, magnitudes = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double scaled = sums[i] * kPerUnit;
    const auto unit = static_cast<std::int64_t>(std::abs(scaled) < kMost ? scaled : 0.0);
    block.units[i] = unit;
    magnitudes |= static_cast<std::uint64_t>(unit ^ (unit >> 63));
    differs |= std::bit_cast<std::uint64_t>(static_cast<double>(unit) * kUnit) ^
               std::bit_cast<std::uint64_t>(sums[i]);
  }
  bits = 2 * magnitudes + 1;
  return differs == 0;
}

void make_block(std::span<const double> sums, Block& block) {
  std::uint64_t bits = 0;
  const bool packs = small_units(sums, block, bits) || any_units(sums, block, bits);
  block.width = packs ? static_cast<unsigned>(std::bit_width(bits) + 7) / 8 : kWhole;
}

}  // namespace

// Each value is stored with eight bytes, of which the next one overwrites what is too much.
std::size_t packing_room(std::size_t count) {
  return (count + kPackedBlock) * sizeof(double) + 1 + kWhole;
}

std::size_t pack_sums(std::span<const double> sums, std::span<std::byte> room) {
  WEIR_CHECK(room.size() >= packing_room(sums.size()), "room for the packed sums");
  Block block;
  std::size_t at = 0;
  for (std::size_t first = 0; first < sums.size(); first += kPackedBlock) {
    const auto part = sums.subspan(first, std::min(kPackedBlock, sums.size() - first));
    make_block(part, block);
    room[at++] = static_cast<std::byte>(block.width);
    std::byte* to = room.data() + at;
    if (block.width == kWhole) {
      std::memcpy(to, part.data(), part.size_bytes());
    } else if (block.width > 0) {
      for (std::size_t i = 0; i < part.size(); ++i, to += block.width) {
        std::memcpy(to, &block.units[i], sizeof(std::int64_t));
      }
    }
    at += block.width * part.size();
    if (at >= sums.size_bytes()) return 0;
  }
  return at;
}

Status unpack_sums(std::span<const std::byte> packed, std::span<double> sums) {
  const auto wrong = [] { return invalid("packed sums: the length of a block is impossible"); };
  std::size_t at = 0;
  for (std::size_t first = 0; first < sums.size(); first += kPackedBlock) {
    const auto part = sums.subspan(first, std::min(kPackedBlock, sums.size() - first));
    if (at >= packed.size()) return wrong();
    const auto width = static_cast<std::size_t>(packed[at++]);
    if (width > kWhole || packed.size() - at < width * part.size()) return wrong();
    const std::byte* from = packed.data() + at;
    const std::size_t left = packed.size() - at;
    at += width * part.size();
    if (width == kWhole) {
      std::memcpy(part.data(), from, part.size_bytes());
      continue;
    }
    if (width == 0) {
      std::ranges::fill(part, 0.0);
      continue;
    }
    const unsigned above = 64 - 8 * static_cast<unsigned>(width);
    const auto put = [&](std::size_t i, std::uint64_t bits) {
      const auto unit = static_cast<std::int64_t>(bits << above) >> above;
      part[i] = static_cast<double>(unit) * kUnit;
    };
    // Loads of eight bytes, but for the last values of all.
    const std::size_t whole =
        left < kWhole ? 0 : std::min(part.size(), (left - kWhole) / width + 1);
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < whole; ++i, from += width) {
      std::memcpy(&bits, from, sizeof bits);
      put(i, bits);
    }
    for (std::size_t i = whole; i < part.size(); ++i, from += width) {
      bits = 0;
      std::memcpy(&bits, from, width);
      put(i, bits);
    }
  }
  if (at != packed.size()) return wrong();
  return Unit{};
}

void PackingRule::measured(std::int64_t bytes, std::chrono::nanoseconds busy) {
  bytes_ += bytes;
  busy_ += busy;
  if (bytes_ < kJudged || busy_.count() <= 0) return;
  const double rate = static_cast<double>(bytes_) / std::chrono::duration<double>(busy_).count();
  slow_ = rate < kPackedBelow * (slow_ ? 1 + kHysteresis : 1 - kHysteresis);
  bytes_ = 0;
  busy_ = {};
}

}  // namespace weir::transport::tcp
