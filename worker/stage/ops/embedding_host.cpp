// SPDX-License-Identifier: Apache-2.0
// Copies and adds rows, in the order of samples and positions.
#include <algorithm>
#include <cstddef>

#include "worker/stage/ops/bf16.h"
#include "worker/stage/ops/embedding.h"
#include "worker/stage/ops/host_operands.h"

namespace weir::stage::ops {
namespace {

using Index = Team::Index;

// Adds the channels begin .. end-1 of a row.
void add_row(Index begin, Index end, const float* from, float* to) {
  for (Index c = begin; c < end; ++c) to[c] += from[c];
}

// Calls visit(row of the table, offset in y) for the context places of the positions begin .. end-1
// of all samples.
template <class Visit>
void for_each_place(const ContextShape& shape, const std::int32_t* tokens, Index begin, Index end,
                    Visit visit) {
  Index offset = begin * shape.context * shape.channels;
  for (Index i = begin; i < end; ++i) {
    const Index t = i % shape.sequence;
    for (Index back = shape.context - 1; back >= 0; --back, offset += shape.channels) {
      visit(t >= back ? Index{tokens[i - back]} : Index{shape.padding_row}, offset);
    }
  }
}

// Only the rows that occur are read, so the tables are not widened.
template <class T>
void embedding_forward(Team& team, const EmbeddingForward& op) {
  const Index channels = op.shape.channels, sequence = op.shape.sequence;
  team.run(op.shape.samples * sequence, least_rows(channels), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const T* token = as<T>(op.token_table) + op.tokens[i] * channels;
      T* y = as<T>(op.y) + i * channels;
      if (op.position_table == nullptr) {
        std::copy_n(token, channels, y);
        continue;
      }
      const T* position = as<T>(op.position_table) + i % sequence * channels;
      for (Index c = 0; c < channels; ++c) {
        y[c] = rounded<T>(widened(token[c]) + widened(position[c]));
      }
    }
  });
}

// A thread of a backward has some channels and adds all tokens in their order.
void embedding_backward(Team& team, const EmbeddingBackward& op, const float* dy) {
  const Index channels = op.shape.channels, sequence = op.shape.sequence;
  const Index positions = op.shape.samples * sequence;
  team.run(channels, least_columns(positions), [&](Index begin, Index end) {
    for (Index i = 0; i < positions; ++i) {
      const float* row = dy + i * channels;
      add_row(begin, end, row, op.dtoken_table + op.tokens[i] * channels);
      if (op.dposition_table == nullptr) continue;
      add_row(begin, end, row, op.dposition_table + i % sequence * channels);
    }
  });
}

template <class T>
void context_embedding_forward(Team& team, const ContextEmbeddingForward& op) {
  const Index channels = op.shape.channels, width = op.shape.context * channels;
  const Index positions = Index{op.shape.samples} * op.shape.sequence;
  team.run(positions, least_rows(width), [&](Index begin, Index end) {
    for_each_place(op.shape, op.tokens, begin, end, [&](Index row, Index offset) {
      std::copy_n(as<T>(op.table) + row * channels, channels, as<T>(op.y) + offset);
    });
  });
}

void context_embedding_backward(Team& team, const ContextEmbeddingBackward& op, const float* dy) {
  const Index channels = op.shape.channels;
  const Index positions = Index{op.shape.samples} * op.shape.sequence;
  team.run(channels, least_columns(positions * op.shape.context), [&](Index begin, Index end) {
    for_each_place(op.shape, op.tokens, 0, positions, [&](Index row, Index offset) {
      add_row(begin, end, dy + offset, op.dtable + row * channels);
    });
  });
}

}  // namespace

void run_on_host(const EmbeddingForward& op, const Host& host) {
  if (host.precision == Precision::kBf16) return embedding_forward<Bf16>(host.team, op);
  embedding_forward<float>(host.team, op);
}

void run_on_host(const EmbeddingBackward& op, const Host& host) {
  const EmbeddingShape& s = op.shape;
  embedding_backward(host.team, op, In(op.dy, product(s.samples, s.sequence, s.channels), host));
}

void run_on_host(const ContextEmbeddingForward& op, const Host& host) {
  if (host.precision == Precision::kBf16) return context_embedding_forward<Bf16>(host.team, op);
  context_embedding_forward<float>(host.team, op);
}

void run_on_host(const ContextEmbeddingBackward& op, const Host& host) {
  const ContextShape& s = op.shape;
  const std::size_t rows = product(s.samples, s.sequence, s.context);
  const auto channels = static_cast<std::size_t>(s.channels);
  context_embedding_backward(host.team, op, In(op.dy, rows * channels, host));
}

}  // namespace weir::stage::ops
