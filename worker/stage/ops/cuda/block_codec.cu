// SPDX-License-Identifier: Apache-2.0
// A warp has a block of the codec, and each of its threads one number.
#include "worker/stage/ops/block_codec.h"
#include "worker/stage/ops/cuda/block_sum.h"
#include "worker/stage/ops/cuda/elementwise.h"
#include "worker/stage/ops/cuda/queue.h"

namespace weir::stage::ops {
namespace {

constexpr unsigned kAllLanes = 0xffffffff;
constexpr unsigned kWarps = kElementwiseThreads / kCodecBlock;  // of a block of threads

// The integer of one number, as an unsigned code of `bits` bits.
__device__ int quantized(float value, std::uint32_t byte, int bits) {
  if (byte == 0 || byte == 255) return 0;
  return __float2int_rn(__fmul_rn(value, __uint_as_float(codec_inverse_scale(byte, bits))));
}

// The integer that a lane finds in the codes of its block (the layout is in block_codec_host.cpp).
__device__ int integer_at(const unsigned char* codes, unsigned lane, int bits) {
  if (bits == 8) return static_cast<signed char>(codes[lane]);
  const unsigned low = codes[lane % 16] >> (lane / 16 * 4) & 15U;
  const unsigned high = codes[16 + lane % 8] >> (lane / 8 * 2) & 3U;
  return static_cast<int>(low | high << 4U) - 32;
}

template <class T>
__global__ void encode_kernel(CodecShape shape, std::size_t blocks, const T* from,
                              unsigned char* to) {
  const unsigned lane = threadIdx.x % kCodecBlock;
  const std::size_t stride = std::size_t{gridDim.x} * kWarps;
  for (std::size_t b = std::size_t{blockIdx.x} * kWarps + threadIdx.x / kCodecBlock; b < blocks;
       b += stride) {
    const CodecBlock place = codec_block(shape, b);
    const float value = lane < place.count ? wide(from[place.first + lane]) : 0.0F;
    unsigned largest = __float_as_uint(value) & 0x7fffffff;
    for (int apart = kCodecBlock / 2; apart > 0; apart /= 2) {
      const unsigned other = __shfl_xor_sync(kAllLanes, largest, apart);
      largest = other > largest ? other : largest;
    }
    const std::uint32_t byte = codec_scale_byte(largest, shape.bits);
    if (lane == 0) to[place.scale] = static_cast<unsigned char>(byte);
    const int q = quantized(value, byte, shape.bits);
    if (shape.bits == 8) {
      to[place.codes + lane] = static_cast<unsigned char>(q);
      continue;
    }
    const unsigned code = static_cast<unsigned>(q + 32);
    const unsigned opposite = __shfl_xor_sync(kAllLanes, code, 16);  // of lane +- 16
    if (lane < 16) {
      to[place.codes + lane] = static_cast<unsigned char>((code & 15U) | (opposite & 15U) << 4U);
    }
    // The upper two bits of lanes i, i+8, i+16, i+24 meet in lane i.
    unsigned high = (code >> 4U) << (lane / 8 * 2);
    high |= __shfl_xor_sync(kAllLanes, high, 16);
    high |= __shfl_xor_sync(kAllLanes, high, 8);
    if (lane < 8) to[place.codes + 16 + lane] = static_cast<unsigned char>(high);
  }
}

template <class T>
__global__ void decode_kernel(CodecShape shape, std::size_t blocks, const unsigned char* from,
                              T* to) {
  const unsigned lane = threadIdx.x % kCodecBlock;
  const std::size_t stride = std::size_t{gridDim.x} * kWarps;
  for (std::size_t b = std::size_t{blockIdx.x} * kWarps + threadIdx.x / kCodecBlock; b < blocks;
       b += stride) {
    const CodecBlock place = codec_block(shape, b);
    if (lane >= place.count) continue;
    const float by = __uint_as_float(codec_scale(from[place.scale], shape.bits));
    const int q = integer_at(from + place.codes, lane, shape.bits);
    to[place.first + lane] = narrow<T>(__fmul_rn(static_cast<float>(q), by));
  }
}

// One block of threads.
template <class T>
__global__ void error_kernel(CodecShape shape, std::size_t blocks, std::size_t first,
                             const T* numbers, const unsigned char* encoded, double* sums) {
  static __shared__ double shared[kSumThreads];
  const unsigned lane = threadIdx.x % kCodecBlock;
  double own[4] = {0, 0, 0, 0};
  for (std::size_t b = first + threadIdx.x / kCodecBlock * kCodecSampling; b < blocks;
       b += kSumThreads / kCodecBlock * kCodecSampling) {
    const CodecBlock place = codec_block(shape, b);
    if (lane >= place.count) continue;
    const double by = __uint_as_float(codec_scale(encoded[place.scale], shape.bits));
    const double decoded = integer_at(encoded + place.codes, lane, shape.bits) * by;
    const double x = wide(numbers[place.first + lane]);
    own[0] += (decoded - x) * (decoded - x);
    own[1] += x * x;
    own[2] += x != 0 && decoded == 0 ? 1 : 0;
    own[3] += x != 0 ? 1 : 0;
  }
  for (int i = 0; i < 4; ++i) {
    const double sum = block_reduce(own[i], shared, [](double a, double b) { return a + b; });
    if (threadIdx.x == 0) sums[i] += sum;
  }
}

unsigned grid_of(std::size_t blocks) {
  const std::size_t needed = (blocks + kWarps - 1) / kWarps;
  return static_cast<unsigned>(needed < kMostBlocks ? needed : kMostBlocks);
}

struct Narrow {
  __device__ Bf16 operator()(float value) const { return narrow<Bf16>(value); }
};
struct Widen {
  __device__ float operator()(Bf16 value) const { return wide(value); }
};

}  // namespace

void run_on_cuda(const EncodeBlocks& op, CudaQueue& queue) {
  if (op.shape.bits == 16) {
    return map(queue.stream, codec_numbers(op.shape), Narrow{}, reinterpret_cast<Bf16*>(op.to),
               as<float>(op.from));
  }
  const std::size_t blocks = all_codec_blocks(op.shape);
  if (blocks == 0) return;
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    start({queue.stream, grid_of(blocks), kElementwiseThreads}, encode_kernel<T>, op.shape, blocks,
          as<T>(op.from), op.to);
  });
}

void run_on_cuda(const DecodeBlocks& op, CudaQueue& queue) {
  if (op.shape.bits == 16) {
    return map(queue.stream, codec_numbers(op.shape), Widen{}, as<float>(op.to),
               reinterpret_cast<const Bf16*>(op.from));
  }
  const std::size_t blocks = all_codec_blocks(op.shape);
  if (blocks == 0) return;
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    start({queue.stream, grid_of(blocks), kElementwiseThreads}, decode_kernel<T>, op.shape, blocks,
          op.from, as<T>(op.to));
  });
}

void run_on_cuda(const SampleCodecError& op, CudaQueue& queue) {
  const std::size_t blocks = all_codec_blocks(op.shape);
  if (op.shape.bits == 16 || blocks == 0) return;
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    start({queue.stream, 1, kSumThreads}, error_kernel<T>, op.shape, blocks,
          static_cast<std::size_t>(op.first), as<T>(op.numbers), op.encoded, op.sums);
  });
}

}  // namespace weir::stage::ops
