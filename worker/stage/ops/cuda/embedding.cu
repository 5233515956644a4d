// SPDX-License-Identifier: Apache-2.0
// Lookups of rows in tables. Backward works without atomics: the block of a row's first place adds
// all places of that row in rising order, so the sum has one order. It checks as many places at a
// time as it has threads, and skips chunks without its row.
#include "worker/stage/ops/cuda/kernel.h"
#include "worker/stage/ops/cuda/queue.h"
#include "worker/stage/ops/embedding.h"

namespace weir::stage::ops {
namespace {

constexpr int kThreads = 128;

template <class T>
__global__ void embedding_forward_kernel(EmbeddingShape shape, const std::int32_t* tokens,
                                         const T* token_table, const T* position_table, T* y) {
  const std::size_t place = blockIdx.x;
  const std::size_t channels = shape.channels;
  const std::size_t token = tokens[place], position = place % shape.sequence;
  for (std::size_t c = threadIdx.x; c < channels; c += blockDim.x) {
    float value = wide(token_table[token * channels + c]);
    if (position_table != nullptr) value += wide(position_table[position * channels + c]);
    y[place * channels + c] = narrow<T>(value);
  }
}

template <class T>
__global__ void position_gradient_kernel(EmbeddingShape shape, const T* dy, float* dposition) {
  const std::size_t position = blockIdx.x;
  const std::size_t channels = shape.channels;
  for (std::size_t c = threadIdx.x; c < channels; c += blockDim.x) {
    float sum = dposition[position * channels + c];
    for (int b = 0; b < shape.samples; ++b) {
      sum += wide(dy[(std::size_t(b) * shape.sequence + position) * channels + c]);
    }
    dposition[position * channels + c] = sum;
  }
}

// Row of the table at a place: the tokens themselves, or a window of them.
struct TokenRows {
  const std::int32_t* tokens;
  __device__ int operator()(int place) const { return tokens[place]; }
};
struct ContextRows {
  ContextShape shape;
  const std::int32_t* tokens;
  __device__ int operator()(int place) const {
    const int at = place / shape.context;  // (b, t)
    const int back = shape.context - 1 - place % shape.context;
    return at % shape.sequence >= back ? tokens[at - back] : shape.padding_row;
  }
};

template <class Rows, class T>
__global__ void row_gradient_kernel(Rows rows, int places, int channels, const T* dy,
                                    float* dtable) {
  constexpr int kOwn = 8;  // channels that a thread adds at once
  static __shared__ bool is_here[kThreads];
  const int place = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int row = rows(place);
  int earlier = 0;
  for (int i = thread; i < place; i += kThreads) earlier |= rows(i) == row;
  if (__syncthreads_or(earlier) != 0) return;
  for (int first = 0; first < channels; first += kOwn * kThreads) {
    float sums[kOwn] = {};
    for (int chunk = place; chunk < places; chunk += kThreads) {
      const bool mine = chunk + thread < places && rows(chunk + thread) == row;
      is_here[thread] = mine;
      if (__syncthreads_or(mine ? 1 : 0) != 0) {
        for (int i = 0; i < kThreads && chunk + i < places; ++i) {
          if (!is_here[i]) continue;
          const T* from = dy + static_cast<std::size_t>(chunk + i) * channels;
          for (int own = 0; own < kOwn; ++own) {
            const int c = first + own * kThreads + thread;
            if (c < channels) sums[own] += wide(from[c]);
          }
        }
        __syncthreads();  // `is_here` is reused
      }
    }
    for (int own = 0; own < kOwn; ++own) {
      const int c = first + own * kThreads + thread;
      if (c < channels) dtable[static_cast<std::size_t>(row) * channels + c] += sums[own];
    }
  }
}

template <class T>
__global__ void context_forward_kernel(ContextRows rows, int channels, const T* table, T* y) {
  const std::size_t place = blockIdx.x;
  const std::size_t row = rows(static_cast<int>(place));
  for (int c = threadIdx.x; c < channels; c += blockDim.x) {
    y[place * channels + c] = table[row * channels + c];
  }
}

}  // namespace

void run_on_cuda(const EmbeddingForward& op, CudaQueue& queue) {
  const auto places = static_cast<unsigned>(op.shape.samples * op.shape.sequence);
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    start({queue.stream, places, kThreads}, embedding_forward_kernel<T>, op.shape, op.tokens,
          as<T>(op.token_table), as<T>(op.position_table), as<T>(op.y));
  });
}

void run_on_cuda(const EmbeddingBackward& op, CudaQueue& queue) {
  const EmbeddingShape s = op.shape;
  const int places = s.samples * s.sequence;
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    start({queue.stream, static_cast<unsigned>(places), kThreads},
          row_gradient_kernel<TokenRows, T>, TokenRows{op.tokens}, places, s.channels, as<T>(op.dy),
          op.dtoken_table);
    if (op.dposition_table == nullptr) return;
    start({queue.stream, static_cast<unsigned>(s.sequence), kThreads}, position_gradient_kernel<T>,
          s, as<T>(op.dy), op.dposition_table);
  });
}

void run_on_cuda(const ContextEmbeddingForward& op, CudaQueue& queue) {
  const ContextShape s = op.shape;
  const auto places = static_cast<unsigned>(s.samples * s.sequence * s.context);
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    start({queue.stream, places, kThreads}, context_forward_kernel<T>, ContextRows{s, op.tokens},
          s.channels, as<T>(op.table), as<T>(op.y));
  });
}

void run_on_cuda(const ContextEmbeddingBackward& op, CudaQueue& queue) {
  const ContextShape s = op.shape;
  const int places = s.samples * s.sequence * s.context;
  with_element(queue, [&](auto element) {
    using T = decltype(element);
    start({queue.stream, static_cast<unsigned>(places), kThreads},
          row_gradient_kernel<ContextRows, T>, ContextRows{s, op.tokens}, places, s.channels,
          as<T>(op.dy), op.dtable);
  });
}

}  // namespace weir::stage::ops
