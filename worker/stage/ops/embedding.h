// SPDX-License-Identifier: Apache-2.0
// Lookups of rows in tables. Tokens are int32 and have been checked against the vocabulary. Forward
// exists for float and Bf16, because only the rows that occur are read.
#pragma once

#include <cstdint>

namespace weir::stage::ops {

struct EmbeddingShape {
  int samples, sequence, channels;  // B, T, C
};

// y (B,T,C) = token_table (V,C)[token] + position_table (T,C)[t].
template <class T>
void embedding_forward(EmbeddingShape shape, const std::int32_t* tokens, const T* token_table,
                       const T* position_table, T* y);
// Adds dy to the rows of both gradients, in the order of (b, t).
void embedding_backward(EmbeddingShape shape, const std::int32_t* tokens, const float* dy,
                        float* dtoken_table, float* dposition_table);

// y (B,T,context x C): the rows of the tokens t-context+1 .. t side by side, oldest first. Before
// the start of the sample the row is V, the padding. table is (V+1,C).
struct ContextShape {
  int samples, sequence, channels, context, padding_row;
};
template <class T>
void context_embedding_forward(ContextShape shape, const std::int32_t* tokens, const T* table,
                               T* y);
void context_embedding_backward(ContextShape shape, const std::int32_t* tokens, const float* dy,
                                float* dtable);

}  // namespace weir::stage::ops
