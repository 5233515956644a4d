// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels as functions that enqueue them on a stream. Contracts are in the operation's
// header; pointers are device memory. T is float or Bf16: computed in float, rounded once when
// stored. Sums have a fixed order (no floating-point atomics), so equal input gives equal bits on
// equal devices. C++17: nvcc compiles it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "worker/stage/ops/adamw.h"
#include "worker/stage/ops/attention.h"
#include "worker/stage/ops/bf16.h"
#include "worker/stage/ops/embedding.h"
#include "worker/stage/ops/layernorm.h"

namespace weir::stage::ops::cuda {

// elementwise.cu
template <class T>
void gelu_forward(cudaStream_t stream, std::size_t count, const T* x, T* y);
template <class T>
void gelu_backward(cudaStream_t stream, std::size_t count, const T* x, const T* dy, T* dx);
template <class T>
void relu_forward(cudaStream_t stream, std::size_t count, const T* x, T* y);
template <class T>
void relu_backward(cudaStream_t stream, std::size_t count, const T* x, const T* dy, T* dx);
template <class T>
void round_values(cudaStream_t stream, std::size_t count, const float* from, T* to);
void adamw(cudaStream_t stream, const AdamWStep& step, std::size_t count, const float* gradient,
           float* value, float* m, float* v);
void add_exactly(cudaStream_t stream, std::size_t count, float* terms, double* sums);
void round_sums(cudaStream_t stream, std::size_t count, const double* sums, float* values);

// rows.cu
// Size of the scratch memory for a sum over columns.
std::size_t column_sum_floats(int rows, int columns);
// sums (columns) += the sum of each column of x (rows, columns).
template <class T>
void add_column_sums(cudaStream_t stream, int rows, int columns, const T* x, float* scratch,
                     float* sums);
template <class T>
void layernorm_forward(cudaStream_t stream, LayerNormShape shape, const T* x, const T* gamma,
                       const T* beta, T* y, float* statistics);
template <class T>
void layernorm_apply(cudaStream_t stream, LayerNormShape shape, const T* x, const float* statistics,
                     const T* gamma, const T* beta, T* y);
// scratch: for two sums over columns.
template <class T>
void layernorm_backward(cudaStream_t stream, LayerNormShape shape, const T* x,
                        const float* statistics, const T* gamma, const T* dy, const T* residual,
                        T* dx, float* scratch, float* dgamma, float* dbeta);
// Writes row_losses (rows) and their sum to *total.
template <class T>
void softmax_loss(cudaStream_t stream, int rows, int vocabulary, const std::int32_t* targets,
                  float scale, T* logits, double* row_losses, double* total);

// Size of the scratch memory for sum_squares; at least 1.
std::size_t squares_doubles(std::size_t count);
void sum_squares(cudaStream_t stream, std::size_t count, const float* values, double* scratch,
                 double* sum);

// attention.cu. C/H is at most 128. row_dots (B,H,T): scratch memory of the backward.
template <class T>
void attention_forward(cudaStream_t stream, AttentionShape shape, const T* qkv, T* y,
                       float* log_sums);
template <class T>
void attention_backward(cudaStream_t stream, AttentionShape shape, const T* qkv, const T* y,
                        const float* log_sums, const T* dy, T* dqkv, float* row_dots);

// embedding.cu
template <class T>
void embedding_forward(cudaStream_t stream, EmbeddingShape shape, const std::int32_t* tokens,
                       const T* token_table, const T* position_table, T* y);
template <class T>
void embedding_backward(cudaStream_t stream, EmbeddingShape shape, const std::int32_t* tokens,
                        const T* dy, float* dtoken_table, float* dposition_table);
template <class T>
void context_embedding_forward(cudaStream_t stream, ContextShape shape, const std::int32_t* tokens,
                               const T* table, T* y);
template <class T>
void context_embedding_backward(cudaStream_t stream, ContextShape shape, const std::int32_t* tokens,
                                const T* dy, float* dtable);

}  // namespace weir::stage::ops::cuda
