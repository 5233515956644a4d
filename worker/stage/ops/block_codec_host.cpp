// SPDX-License-Identifier: Apache-2.0
// Loops over the 32 numbers of a block, which the compiler vectorises.
#include <algorithm>
#include <cmath>

#include "worker/stage/ops/block_codec.h"
#include "worker/stage/ops/host_operands.h"

namespace weir::stage::ops {
namespace {

constexpr std::size_t kBlock = kCodecBlock;
constexpr float kRounds = 12582912.0F;  // 1.5 x 2^23: adding it rounds to the nearest even integer

float as_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// The numbers of a block as floats.
template <class T>
void load_block(const T* from, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = widened(from[i]);
  for (std::size_t i = count; i < kBlock; ++i) to[i] = 0;
}
template <class T>
void load_whole_block(const T* from, float* to) {
  for (std::size_t i = 0; i < kBlock; ++i) to[i] = widened(from[i]);
}

std::uint32_t largest_of(const float* values) {
  std::int32_t bits[kBlock];
  std::memcpy(bits, values, sizeof bits);
  std::int32_t largest = 0;
  for (const std::int32_t b : bits) largest = std::max(largest, b & 0x7fffffff);
  return static_cast<std::uint32_t>(largest);
}

// The integers q of a block.
void quantize(const float* values, float inverse, std::int32_t* q) {
  for (std::size_t i = 0; i < kBlock; ++i) {
    const float rounded = values[i] * inverse + kRounds;
    std::int32_t bits;
    std::memcpy(&bits, &rounded, sizeof bits);
    q[i] = bits - 0x4b400000;  // of kRounds
  }
}

struct Codes8 {
  static constexpr int kBits = 8;
  static void write(const std::int32_t* q, unsigned char* to) {
    for (std::size_t i = 0; i < kBlock; ++i) to[i] = static_cast<unsigned char>(q[i]);
  }
  static void read(const unsigned char* from, float* q) {
    for (std::size_t i = 0; i < kBlock; ++i) {
      q[i] = static_cast<float>(static_cast<signed char>(from[i]));
    }
  }
};

// 16 bytes of low halves, of numbers i and i+16; then 8 bytes of the upper two bits of i, i+8,
// i+16, i+24.
struct Codes6 {
  static constexpr int kBits = 6;
  static void write(const std::int32_t* q, unsigned char* to) {
    unsigned char u[kBlock];
    for (std::size_t i = 0; i < kBlock; ++i) u[i] = static_cast<unsigned char>(q[i] + 32);
    for (std::size_t i = 0; i < 16; ++i) {
      to[i] = static_cast<unsigned char>((u[i] & 15U) | (u[i + 16] & 15U) << 4U);
    }
    for (std::size_t i = 0; i < 8; ++i) {
      to[16 + i] = static_cast<unsigned char>(u[i] >> 4U | (u[i + 8] >> 4U) << 2U |
                                              (u[i + 16] >> 4U) << 4U | (u[i + 24] >> 4U) << 6U);
    }
  }
  static void read(const unsigned char* from, float* q) {
    unsigned char u[kBlock];
    for (std::size_t i = 0; i < 16; ++i) {
      u[i] = from[i] & 15U;
      u[i + 16] = from[i] >> 4U;
    }
    for (std::size_t group = 0; group < 4; ++group) {
      for (std::size_t i = 0; i < 8; ++i) {
        u[8 * group + i] |= static_cast<unsigned char>((from[16 + i] >> (2 * group) & 3U) << 4U);
      }
    }
    for (std::size_t i = 0; i < kBlock; ++i) q[i] = static_cast<float>(int{u[i]} - 32);
  }
};

template <class Codes, class T>
void encode_block(const T* from, std::size_t count, unsigned char* scale, unsigned char* codes) {
  float values[kBlock];
  if (count == kBlock) {
    load_whole_block(from, values);
  } else {
    load_block(from, count, values);
  }
  const std::uint32_t byte = codec_scale_byte(largest_of(values), Codes::kBits);
  *scale = static_cast<unsigned char>(byte);
  std::int32_t q[kBlock] = {};
  // Neither zeros nor NaNs are multiplied: their integers are 0.
  if (byte != 0 && byte != 255) {
    quantize(values, as_float(codec_inverse_scale(byte, Codes::kBits)), q);
  }
  Codes::write(q, codes);
}

template <class Codes>
void decode_block(unsigned char scale, const unsigned char* codes, float* values) {
  float q[kBlock];
  Codes::read(codes, q);
  const float by = as_float(codec_scale(scale, Codes::kBits));
  for (std::size_t i = 0; i < kBlock; ++i) values[i] = q[i] * by;
}

template <class Body>
void for_blocks(const CodecShape& shape, const Host& host, const Body& body) {
  host.team.run(static_cast<Team::Index>(all_codec_blocks(shape)), kLeastElements / kCodecBlock,
                [&](Team::Index begin, Team::Index end) {
                  for (auto b = static_cast<std::size_t>(begin); b < static_cast<std::size_t>(end);
                       ++b) {
                    body(codec_block(shape, b));
                  }
                });
}

template <class Body>
void with_codes(const CodecShape& shape, const Body& body) {
  if (shape.bits == Codes8::kBits) return body(Codes8{});
  body(Codes6{});
}
template <class Body>
void with_type(const Host& host, const Body& body) {
  if (host.precision == Precision::kBf16) return body(Bf16{});
  body(float{});
}

}  // namespace

void run_on_host(const EncodeBlocks& op, const Host& host) {
  if (op.shape.bits == 16) {
    auto* const to = reinterpret_cast<Bf16*>(op.to);
    for_elements(host.team, codec_numbers(op.shape), [&](Team::Index begin, Team::Index end) {
      round(static_cast<std::size_t>(end - begin), as<float>(op.from) + begin, to + begin);
    });
    return;
  }
  with_type(host, [&](auto type) {
    using T = decltype(type);
    with_codes(op.shape, [&](auto codes) {
      for_blocks(op.shape, host, [&](const CodecBlock& b) {
        encode_block<decltype(codes)>(as<T>(op.from) + b.first, b.count, op.to + b.scale,
                                      op.to + b.codes);
      });
    });
  });
}

void run_on_host(const DecodeBlocks& op, const Host& host) {
  if (op.shape.bits == 16) {
    widen(host.team, codec_numbers(op.shape), reinterpret_cast<const Bf16*>(op.from),
          as<float>(op.to));
    return;
  }
  with_type(host, [&](auto type) {
    using T = decltype(type);
    with_codes(op.shape, [&](auto codes) {
      for_blocks(op.shape, host, [&](const CodecBlock& b) {
        float values[kBlock];
        decode_block<decltype(codes)>(op.from[b.scale], op.from + b.codes, values);
        T* const to = as<T>(op.to) + b.first;
        if (b.count == kBlock) {
          for (std::size_t i = 0; i < kBlock; ++i) to[i] = rounded<T>(values[i]);
        } else {
          for (std::size_t i = 0; i < b.count; ++i) to[i] = rounded<T>(values[i]);
        }
      });
    });
  });
}

void run_on_host(const SampleCodecError& op, const Host& host) {
  if (op.shape.bits == 16) return;
  double error = 0, signal = 0, zeroed = 0, nonzero = 0;
  with_type(host, [&](auto type) {
    using T = decltype(type);
    with_codes(op.shape, [&](auto codes) {
      for (auto b = static_cast<std::size_t>(op.first); b < all_codec_blocks(op.shape);
           b += kCodecSampling) {
        const CodecBlock block = codec_block(op.shape, b);
        float values[kBlock];
        decode_block<decltype(codes)>(op.encoded[block.scale], op.encoded + block.codes, values);
        for (std::size_t i = 0; i < block.count; ++i) {
          const double x = widened(as<T>(op.numbers)[block.first + i]);
          error += (values[i] - x) * (values[i] - x);
          signal += x * x;
          nonzero += x != 0 ? 1 : 0;
          zeroed += x != 0 && values[i] == 0 ? 1 : 0;
        }
      }
    });
  });
  op.sums[0] += error, op.sums[1] += signal, op.sums[2] += zeroed, op.sums[3] += nonzero;
}

}  // namespace weir::stage::ops
