// SPDX-License-Identifier: Apache-2.0
// Copies and adds rows, in the order of samples and positions.
#include <algorithm>
#include <cstddef>

#include "worker/stage/ops/bf16.h"
#include "worker/stage/ops/embedding.h"
#include "worker/stage/ops/host_operands.h"

namespace weir::stage::ops {
namespace {

using Index = std::ptrdiff_t;

void add_row(Index count, const float* from, float* to) {
  for (Index c = 0; c < count; ++c) to[c] += from[c];
}

// Calls visit(row of the table, offset in y) for each of the B x T x context places.
template <class Visit>
void for_each_place(const ContextShape& shape, const std::int32_t* tokens, Visit visit) {
  Index offset = 0;
  for (Index b = 0; b < shape.samples; ++b) {
    for (Index t = 0; t < shape.sequence; ++t) {
      for (Index back = shape.context - 1; back >= 0; --back, offset += shape.channels) {
        visit(t >= back ? Index{tokens[b * shape.sequence + t - back]} : Index{shape.padding_row},
              offset);
      }
    }
  }
}

// Only the rows that occur are read, so the tables are not widened.
template <class T>
void embedding_forward(const EmbeddingForward& op) {
  const Index channels = op.shape.channels;
  const std::int32_t* tokens = op.tokens;
  T* y = as<T>(op.y);
  for (Index b = 0; b < op.shape.samples; ++b) {
    for (Index t = 0; t < op.shape.sequence; ++t, ++tokens, y += channels) {
      const T* token = as<T>(op.token_table) + *tokens * channels;
      const T* position = as<T>(op.position_table) + t * channels;
      for (Index c = 0; c < channels; ++c) {
        y[c] = rounded<T>(widened(token[c]) + widened(position[c]));
      }
    }
  }
}

void embedding_backward(const EmbeddingBackward& op, const float* dy) {
  const Index channels = op.shape.channels;
  const std::int32_t* tokens = op.tokens;
  for (Index b = 0; b < op.shape.samples; ++b) {
    for (Index t = 0; t < op.shape.sequence; ++t, ++tokens, dy += channels) {
      add_row(channels, dy, op.dtoken_table + *tokens * channels);
      add_row(channels, dy, op.dposition_table + t * channels);
    }
  }
}

template <class T>
void context_embedding_forward(const ContextEmbeddingForward& op) {
  const Index channels = op.shape.channels;
  for_each_place(op.shape, op.tokens, [&](Index row, Index offset) {
    std::copy_n(as<T>(op.table) + row * channels, channels, as<T>(op.y) + offset);
  });
}

void context_embedding_backward(const ContextEmbeddingBackward& op, const float* dy) {
  const Index channels = op.shape.channels;
  for_each_place(op.shape, op.tokens, [&](Index row, Index offset) {
    add_row(channels, dy + offset, op.dtable + row * channels);
  });
}

}  // namespace

void run_on_host(const EmbeddingForward& op, Precision precision) {
  if (precision == Precision::kBf16) return embedding_forward<Bf16>(op);
  embedding_forward<float>(op);
}

void run_on_host(const EmbeddingBackward& op, Precision precision) {
  const EmbeddingShape& s = op.shape;
  embedding_backward(op, In(op.dy, product(s.samples, s.sequence, s.channels), precision));
}

void run_on_host(const ContextEmbeddingForward& op, Precision precision) {
  if (precision == Precision::kBf16) return context_embedding_forward<Bf16>(op);
  context_embedding_forward<float>(op);
}

void run_on_host(const ContextEmbeddingBackward& op, Precision precision) {
  const ContextShape& s = op.shape;
  const std::size_t rows = product(s.samples, s.sequence, s.context);
  const auto channels = static_cast<std::size_t>(s.channels);
  context_embedding_backward(op, In(op.dy, rows * channels, precision));
}

}  // namespace weir::stage::ops
