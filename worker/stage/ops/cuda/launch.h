// SPDX-License-Identifier: Apache-2.0
// The CUDA kernels as functions that enqueue them on a stream. Contracts are those of the
// operation's header; pointers are device memory. Sums have a fixed order (no floating-point
// atomics), so equal input gives equal bits on equal devices. C++17: nvcc compiles it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "worker/stage/ops/adamw.h"
#include "worker/stage/ops/attention.h"
#include "worker/stage/ops/embedding.h"
#include "worker/stage/ops/layernorm.h"

namespace weir::stage::ops::cuda {

// elementwise.cu
void gelu_forward(cudaStream_t stream, std::size_t count, const float* x, float* y);
void gelu_backward(cudaStream_t stream, std::size_t count, const float* x, const float* dy,
                   float* dx);
void relu_forward(cudaStream_t stream, std::size_t count, const float* x, float* y);
void relu_backward(cudaStream_t stream, std::size_t count, const float* x, const float* dy,
                   float* dx);
void adamw(cudaStream_t stream, const AdamWStep& step, std::size_t count, const float* gradient,
           float* value, float* m, float* v);
void add_exactly(cudaStream_t stream, std::size_t count, float* terms, double* sums);
void round_sums(cudaStream_t stream, std::size_t count, const double* sums, float* values);
// y (rows, columns) = residual + bias; either may be null (0). residual may be y.
void fill_rows(cudaStream_t stream, int rows, int columns, const float* bias, const float* residual,
               float* y);

// rows.cu
// sums (columns) += the sum of each column of x (rows, columns).
void add_column_sums(cudaStream_t stream, int rows, int columns, const float* x, float* sums);
void layernorm_forward(cudaStream_t stream, LayerNormShape shape, const float* x,
                       const float* gamma, const float* beta, float* y, float* statistics);
void layernorm_apply(cudaStream_t stream, LayerNormShape shape, const float* x,
                     const float* statistics, const float* gamma, const float* beta, float* y);
void layernorm_backward(cudaStream_t stream, LayerNormShape shape, const float* x,
                        const float* statistics, const float* gamma, const float* dy,
                        const float* residual, float* dx, float* dgamma, float* dbeta);
// row_losses (rows) and their sum in *total.
void softmax_loss(cudaStream_t stream, int rows, int vocabulary, const std::int32_t* targets,
                  float scale, float* logits, double* row_losses, double* total);

// attention.cu. C/H at most 128. row_dots (B,H,T): scratch of the backward.
void attention_forward(cudaStream_t stream, AttentionShape shape, const float* qkv, float* y,
                       float* log_sums);
void attention_backward(cudaStream_t stream, AttentionShape shape, const float* qkv, const float* y,
                        const float* log_sums, const float* dy, float* dqkv, float* row_dots);

// embedding.cu
void embedding_forward(cudaStream_t stream, EmbeddingShape shape, const std::int32_t* tokens,
                       const float* token_table, const float* position_table, float* y);
void embedding_backward(cudaStream_t stream, EmbeddingShape shape, const std::int32_t* tokens,
                        const float* dy, float* dtoken_table, float* dposition_table);
void context_embedding_forward(cudaStream_t stream, ContextShape shape, const std::int32_t* tokens,
                               const float* table, float* y);
void context_embedding_backward(cudaStream_t stream, ContextShape shape, const std::int32_t* tokens,
                                const float* dy, float* dtable);

}  // namespace weir::stage::ops::cuda
