// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "worker/stage/ops/host_operands.h"
#include "worker/stage/ops/rms_norm.h"
#include "worker/stage/ops/vector.h"

namespace weir::stage::ops {
namespace {

// Where vector v lies, the h-th one of row r.
struct Vector {
  Index at, r, h;
};
Vector vector_at(const RmsNormShape& shape, Index v) {
  const Index r = v / shape.heads, h = v % shape.heads;
  return {r * shape.stride + h * shape.channels, r, h};
}

// From the first element to the last one that belongs to a vector.
std::size_t extent(const RmsNormShape& shape) {
  return product(shape.rows - 1, shape.stride) + product(shape.heads, shape.channels);
}

// Calls f(v, place) for each vector.
template <class F>
void for_vectors(Team& team, const RmsNormShape& shape, F f) {
  team.run(Index{shape.rows} * shape.heads, least_rows(shape.channels),
           [&](Index begin, Index end) {
             for (Index v = begin; v < end; ++v) f(v, vector_at(shape, v).at);
           });
}

// Sum of a[i] b[i] c[i], in lanes.
template <class F>
float sum(Index count, F term) {
  Vec total = broadcast(0.0F);
  Index i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    total += term([i](const float* from) { return load(from + i); });
  }
  total += term([i, count](const float* from) { return load_some(from + i, count - i, 0.0F); });
  return sum_of_lanes(total);
}

void apply(Index channels, const float* x, float rstd, const float* gamma, float* y) {
  for (Index c = 0; c < channels; ++c) y[c] = x[c] * rstd * gamma[c];
}

void rms_norm_forward(Team& team, const RmsNormShape& shape, const float* x, const float* gamma,
                      float* y, float* rstd) {
  const auto count = static_cast<float>(shape.channels);
  for_vectors(team, shape, [&](Index v, Index at) {
    const float* from = x + at;
    const float squares =
        sum(shape.channels, [from](const auto& take) { return take(from) * take(from); });
    rstd[v] = 1.0F / std::sqrt(squares / count + shape.epsilon);
    apply(shape.channels, from, rstd[v], gamma, y + at);
  });
}

// A thread has some channels and adds all vectors in their order.
void rms_norm_backward_parameters(Team& team, const RmsNormShape& shape, const float* x,
                                  const float* rstd, const float* dy, float* dgamma) {
  const Index vectors = Index{shape.rows} * shape.heads;
  team.run(shape.channels, least_columns(vectors), [&](Index begin, Index end) {
    std::fill(dgamma + begin, dgamma + end, 0.0F);
    for (Index v = 0; v < vectors; ++v) {
      const Index at = vector_at(shape, v).at;
      for (Index c = begin; c < end; ++c) dgamma[c] += dy[at + c] * (x[at + c] * rstd[v]);
    }
  });
}

// With g = dy gamma and h = x rstd:  dx = rstd (g - h mean(g h)).
void rms_norm_backward_input(Team& team, const RmsNormShape& shape, const float* x,
                             const float* rstd, const float* gamma, const float* dy,
                             const float* residual, float* dx) {
  const auto count = static_cast<float>(shape.channels);
  for_vectors(team, shape, [&](Index v, Index at) {
    const float *from = x + at, *up = dy + at;
    const float scale = rstd[v];
    const float mean = sum(shape.channels,
                           [&](const auto& take) {
                             return take(up) * take(gamma) * (take(from) * broadcast(scale));
                           }) /
                       count;
    for (Index c = 0; c < shape.channels; ++c) {
      const float gradient = scale * (up[c] * gamma[c] - from[c] * scale * mean);
      dx[at + c] = residual == nullptr ? gradient : residual[at + c] + gradient;
    }
  });
}

std::size_t channels_of(const RmsNormShape& shape) {
  return product(shape.channels, 1);
}

}  // namespace

// Between the vectors y keeps what it holds.
void run_on_host(const RmsNormForward& op, const Host& host) {
  const std::size_t count = extent(op.shape);
  rms_norm_forward(host.team, op.shape, In(op.x, count, host),
                   In(op.gamma, channels_of(op.shape), host), InOut(op.y, count, host), op.rstd);
}

void run_on_host(const RmsNormApply& op, const Host& host) {
  const RmsNormShape& shape = op.shape;
  const std::size_t count = extent(shape);
  const In x(op.x, count, host), gamma(op.gamma, channels_of(shape), host);
  InOut y(op.y, count, host);
  for_vectors(host.team, shape,
              [&](Index v, Index at) { apply(shape.channels, x + at, op.rstd[v], gamma, y + at); });
}

void run_on_host(const RmsNormBackward& op, const Host& host) {
  const std::size_t count = extent(op.shape);
  const In x(op.x, count, host), dy(op.dy, count, host);
  rms_norm_backward_parameters(host.team, op.shape, x, op.rstd, dy, op.dgamma);
  rms_norm_backward_input(host.team, op.shape, x, op.rstd,
                          In(op.gamma, channels_of(op.shape), host), dy,
                          In(op.residual, count, host), InOut(op.dx, count, host));
}

}  // namespace weir::stage::ops
