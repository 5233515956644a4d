// SPDX-License-Identifier: Apache-2.0
// Lookups of rows in tables. Tokens are int32 and have been checked against the vocabulary.
#pragma once

#include "worker/stage/ops/element.h"

namespace weir::stage::ops {

struct EmbeddingShape {
  int samples, sequence, channels;  // B, T, C
};

// y (B,T,C) = token_table (V,C)[token] + position_table (at least T rows of C)[t]. position_table
// may be null: y = token_table[token].
struct EmbeddingForward {
  EmbeddingShape shape;
  const std::int32_t* tokens;
  const Element *token_table, *position_table;
  Element* y;
  auto fields() const { return std::tie(shape, tokens, token_table, position_table, y); }
};
void run_on_host(const EmbeddingForward& op, const Host& host);
void run_on_cuda(const EmbeddingForward& op, CudaQueue& queue);

// Adds dy to the rows of both gradients, in the order of (b, t). dposition_table may be null.
struct EmbeddingBackward {
  EmbeddingShape shape;
  const std::int32_t* tokens;
  const Element* dy;
  float *dtoken_table, *dposition_table;
  auto fields() const { return std::tie(shape, tokens, dy, dtoken_table, dposition_table); }
};
void run_on_host(const EmbeddingBackward& op, const Host& host);
void run_on_cuda(const EmbeddingBackward& op, CudaQueue& queue);

struct ContextShape {
  int samples, sequence, channels, context, padding_row;
};

// y (B,T,context x C): the rows of the tokens t-context+1 .. t side by side, oldest first. Before
// the start of the sample the row is V, the padding. table is (V+1,C).
struct ContextEmbeddingForward {
  ContextShape shape;
  const std::int32_t* tokens;
  const Element* table;
  Element* y;
  auto fields() const { return std::tie(shape, tokens, table, y); }
};
void run_on_host(const ContextEmbeddingForward& op, const Host& host);
void run_on_cuda(const ContextEmbeddingForward& op, CudaQueue& queue);

// Adds dy to the rows of dtable.
struct ContextEmbeddingBackward {
  ContextShape shape;
  const std::int32_t* tokens;
  const Element* dy;
  float* dtable;
  auto fields() const { return std::tie(shape, tokens, dy, dtable); }
};
void run_on_host(const ContextEmbeddingBackward& op, const Host& host);
void run_on_cuda(const ContextEmbeddingBackward& op, CudaQueue& queue);

}  // namespace weir::stage::ops
