// SPDX-License-Identifier: Apache-2.0
// Copies and adds rows, in the order of samples and positions.
#include <algorithm>
#include <cstddef>

#include "worker/stage/ops/bf16.h"
#include "worker/stage/ops/embedding.h"

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

}  // namespace

template <class T>
void embedding_forward(EmbeddingShape shape, const std::int32_t* tokens, const T* token_table,
                       const T* position_table, T* y) {
  const Index channels = shape.channels;
  for (Index b = 0; b < shape.samples; ++b) {
    for (Index t = 0; t < shape.sequence; ++t, ++tokens, y += channels) {
      const T* token = token_table + *tokens * channels;
      const T* position = position_table + t * channels;
      for (Index c = 0; c < channels; ++c) {
        y[c] = rounded<T>(widened(token[c]) + widened(position[c]));
      }
    }
  }
}
template void embedding_forward(EmbeddingShape, const std::int32_t*, const float*, const float*,
                                float*);
template void embedding_forward(EmbeddingShape, const std::int32_t*, const Bf16*, const Bf16*,
                                Bf16*);

void embedding_backward(EmbeddingShape shape, const std::int32_t* tokens, const float* dy,
                        float* dtoken_table, float* dposition_table) {
  const Index channels = shape.channels;
  for (Index b = 0; b < shape.samples; ++b) {
    for (Index t = 0; t < shape.sequence; ++t, ++tokens, dy += channels) {
      add_row(channels, dy, dtoken_table + *tokens * channels);
      add_row(channels, dy, dposition_table + t * channels);
    }
  }
}

template <class T>
void context_embedding_forward(ContextShape shape, const std::int32_t* tokens, const T* table,
                               T* y) {
  const Index channels = shape.channels;
  for_each_place(shape, tokens, [&](Index row, Index offset) {
    std::copy_n(table + row * channels, channels, y + offset);
  });
}
template void context_embedding_forward(ContextShape, const std::int32_t*, const float*, float*);
template void context_embedding_forward(ContextShape, const std::int32_t*, const Bf16*, Bf16*);

void context_embedding_backward(ContextShape shape, const std::int32_t* tokens, const float* dy,
                                float* dtable) {
  const Index channels = shape.channels;
  for_each_place(shape, tokens, [&](Index row, Index offset) {
    add_row(channels, dy + offset, dtable + row * channels);
  });
}

}  // namespace weir::stage::ops
