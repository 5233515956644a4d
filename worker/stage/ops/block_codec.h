// SPDX-License-Identifier: Apache-2.0
// Tensors between stages in fewer bits (worker/stage/README.md "Codecs"). Blocks are 32
// consecutive numbers of one sample, the last one filled up with zeros; a sample is all bytes of
// scale, then all codes. With 8 bits a block is an MXINT8 block of the OCP Microscaling Formats
// specification 1.0. For m = 2^(bits-1) - 1, the largest |x| = a of a block and e = the smallest
// integer with a <= m 2^e:
//   q = x 2^-e, rounded to nearest even, so |q| <= m; decoded: q 2^e, exact in both precisions.
//   The byte is the exponent of a as a float has it, or one more. 0: a < 2^-100, all are 0. 255: a
//   is not finite or too large for byte 253, near 2^127, and all decode to NaN.
// There is neither division nor clamping, and encoding what was decoded gives the same bytes.
// With 16 bits there are no blocks: each float is rounded to the nearest bfloat16. C++17: nvcc
// compiles it.
#pragma once

#include <cstring>

#include "worker/stage/ops/element.h"

#ifdef __CUDACC__
#define WEIR_HOST_AND_DEVICE __host__ __device__
#else
#define WEIR_HOST_AND_DEVICE
#endif

namespace weir::stage::ops {

inline constexpr int kCodecBlock = 32;
// SampleCodecError looks at one block of so many: no divisor of the blocks of a token, as a power
// of two mostly is, since it would always look at the same columns.
inline constexpr int kCodecSampling = 61;

// Numbers of one kind: floats, or Elements of kernels in bf16, as `samples` x `count`. bits: 6, 8,
// or 16 with float32.
struct CodecShape {
  int bits;
  int samples, count;
};
WEIR_HOST_AND_DEVICE inline std::size_t codec_blocks(const CodecShape& s) {  // of one sample
  return (static_cast<std::size_t>(s.count) + kCodecBlock - 1) / kCodecBlock;
}
WEIR_HOST_AND_DEVICE inline std::size_t code_bytes(const CodecShape& s) {  // of one block
  return static_cast<std::size_t>(kCodecBlock / 8 * s.bits);
}
WEIR_HOST_AND_DEVICE inline std::size_t encoded_sample_bytes(const CodecShape& s) {
  return s.bits == 16 ? std::size_t{2} * static_cast<std::size_t>(s.count)
                      : codec_blocks(s) * (1 + code_bytes(s));
}

inline std::size_t all_codec_blocks(const CodecShape& s) {
  return static_cast<std::size_t>(s.samples) * codec_blocks(s);
}
inline std::size_t codec_numbers(const CodecShape& s) {
  return static_cast<std::size_t>(s.samples) * static_cast<std::size_t>(s.count);
}

// Where block b of all samples lies.
struct CodecBlock {
  std::size_t first, count;  // numbers
  std::size_t scale, codes;  // bytes of the encoded form
};
WEIR_HOST_AND_DEVICE inline CodecBlock codec_block(const CodecShape& s, std::size_t b) {
  const std::size_t blocks = codec_blocks(s), size = static_cast<std::size_t>(s.count);
  const std::size_t sample = b / blocks, in_sample = b % blocks;
  const std::size_t begin = sample * encoded_sample_bytes(s);
  const std::size_t left = size - in_sample * kCodecBlock;
  return {sample * size + in_sample * kCodecBlock, left < kCodecBlock ? left : kCodecBlock,
          begin + in_sample, begin + blocks + in_sample * code_bytes(s)};
}

// The byte of a block, from the largest bits of its numbers as floats without their signs. A float
// is 1.f x 2^E; m is just below the power of two above it, and `limit` is f of m.
WEIR_HOST_AND_DEVICE inline std::uint32_t codec_scale_byte(std::uint32_t largest, int bits) {
  const std::uint32_t exponent = largest >> 23;
  if (exponent < 27) return 0;
  const std::uint32_t limit = bits == 8 ? 0x7e0000 : 0x780000;
  const std::uint32_t byte = (largest & 0x7fffff) > limit ? exponent + 1 : exponent;
  // With byte 254 a number could round up to 2^127.
  return byte > 253 ? 255 : byte;
}
// 2^e of a byte as the bits of a float, and 2^-e. Bytes that no encoder writes scale to 0.
WEIR_HOST_AND_DEVICE inline std::uint32_t codec_scale(std::uint32_t byte, int bits) {
  if (byte == 255) return 0x7fc00000;  // NaN
  if (byte < 27) return 0;
  return (byte - (bits == 8 ? 6U : 4U)) << 23;
}
WEIR_HOST_AND_DEVICE inline std::uint32_t codec_inverse_scale(std::uint32_t byte, int bits) {
  if (byte == 255 || byte < 27) return 0;
  return ((bits == 8 ? 260U : 258U) - byte) << 23;
}

// to = the encoded form of `from`.
struct EncodeBlocks {
  CodecShape shape;
  const Element* from;
  unsigned char* to;
  auto fields() const { return std::tie(shape, from, to); }
};
void run_on_host(const EncodeBlocks& op, const Host& host);
void run_on_cuda(const EncodeBlocks& op, CudaQueue& queue);

struct DecodeBlocks {
  CodecShape shape;
  const unsigned char* from;
  Element* to;
  auto fields() const { return std::tie(shape, from, to); }
};
void run_on_host(const DecodeBlocks& op, const Host& host);
void run_on_cuda(const DecodeBlocks& op, CudaQueue& queue);

// Looks at rounding in one block of kCodecSampling, from block `first` on: adds to sums[0] the
// squares of the errors, to [1] the squares of the numbers, to [2] how many are not 0 but decode to
// 0, and to [3] how many are not 0. Nothing with 16 bits.
struct SampleCodecError {
  CodecShape shape;
  const Element* numbers;
  const unsigned char* encoded;
  double* sums;
  int first = 0;
  auto fields() const { return std::tie(shape, numbers, encoded, sums, first); }
};
void run_on_host(const SampleCodecError& op, const Host& host);
void run_on_cuda(const SampleCodecError& op, CudaQueue& queue);

}  // namespace weir::stage::ops
