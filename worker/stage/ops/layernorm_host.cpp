// SPDX-License-Identifier: Apache-2.0
// Two passes for the statistics (mean, then variance), as exact as float sums allow.
#include <algorithm>
#include <cmath>

#include "worker/stage/ops/host_operands.h"
#include "worker/stage/ops/layernorm.h"
#include "worker/stage/ops/vector.h"

namespace weir::stage::ops {
namespace {

// Sum of f(i, rest) over i < count in steps of kLanes; f gets the index of the first element and
// the number of elements that are left.
template <class F>
float sum(Index count, F f) {
  Vec total = broadcast(0.0F);
  for (Index i = 0; i < count; i += kLanes) total += f(i, count - i);
  return sum_of_lanes(total);
}

Vec take(const float* from, Index left, float fill) {
  return left >= kLanes ? load(from) : load_some(from, left, fill);
}

void apply_row(Index channels, const float* x, float mean, float rstd, const float* gamma,
               const float* beta, float* y) {
  for (Index c = 0; c < channels; ++c) y[c] = (x[c] - mean) * rstd * gamma[c] + beta[c];
}

// Calls f(r) for each row.
template <class F>
void for_rows(Team& team, LayerNormShape shape, F f) {
  team.run(shape.rows, least_rows(shape.channels), [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) f(r);
  });
}

void layernorm_forward(Team& team, LayerNormShape shape, const float* x, const float* gamma,
                       const float* beta, float* y, float* statistics) {
  const Index channels = shape.channels;
  const auto count = static_cast<float>(channels);
  for_rows(team, shape, [&](Index r) {
    const float* row = x + r * channels;
    const float mean =
        sum(channels, [&](Index c, Index left) { return take(row + c, left, 0.0F); }) / count;
    const float squares = sum(channels, [&](Index c, Index left) {
      const Vec distance = take(row + c, left, mean) - broadcast(mean);
      return distance * distance;
    });
    const float rstd = 1.0F / std::sqrt(squares / count + shape.epsilon);
    statistics[2 * r] = mean;
    statistics[2 * r + 1] = rstd;
    apply_row(channels, row, mean, rstd, gamma, beta, y + r * channels);
  });
}

void layernorm_apply(Team& team, LayerNormShape shape, const float* x, const float* statistics,
                     const float* gamma, const float* beta, float* y) {
  const Index channels = shape.channels;
  for_rows(team, shape, [&](Index r) {
    apply_row(channels, x + r * channels, statistics[2 * r], statistics[2 * r + 1], gamma, beta,
              y + r * channels);
  });
}

// A thread has some channels and adds all rows in their order.
void layernorm_backward_parameters(Team& team, LayerNormShape shape, const float* x,
                                   const float* statistics, const float* dy, float* dgamma,
                                   float* dbeta) {
  const Index channels = shape.channels;
  team.run(channels, least_columns(shape.rows), [&](Index begin, Index end) {
    std::fill(dgamma + begin, dgamma + end, 0.0F);
    std::fill(dbeta + begin, dbeta + end, 0.0F);
    for (Index r = 0; r < shape.rows; ++r) {
      const float mean = statistics[2 * r], rstd = statistics[2 * r + 1];
      const float* row = x + r * channels;
      const float* dy_row = dy + r * channels;
      for (Index c = begin; c < end; ++c) {
        dgamma[c] += dy_row[c] * ((row[c] - mean) * rstd);
        dbeta[c] += dy_row[c];
      }
    }
  });
}

// With g = dy gamma and h = (x - mean) rstd:  dx = rstd (g - mean(g) - h mean(g h)).
void layernorm_backward_input(Team& team, LayerNormShape shape, const float* x,
                              const float* statistics, const float* gamma, const float* dy,
                              const float* residual, float* dx) {
  const Index channels = shape.channels;
  const auto count = static_cast<float>(channels);
  for_rows(team, shape, [&](Index r) {
    const float mean = statistics[2 * r];
    const float rstd = statistics[2 * r + 1];
    const float* row = x + r * channels;
    const float* dy_row = dy + r * channels;
    const float mean_g = sum(channels,
                             [&](Index c, Index left) {
                               return take(dy_row + c, left, 0.0F) * take(gamma + c, left, 0.0F);
                             }) /
                         count;
    const float mean_gh =
        sum(channels,
            [&](Index c, Index left) {
              const Vec h = (take(row + c, left, mean) - broadcast(mean)) * broadcast(rstd);
              return take(dy_row + c, left, 0.0F) * take(gamma + c, left, 0.0F) * h;
            }) /
        count;
    float* dx_row = dx + r * channels;
    for (Index c = 0; c < channels; ++c) {
      const float h = (row[c] - mean) * rstd;
      const float gradient = rstd * (dy_row[c] * gamma[c] - mean_g - h * mean_gh);
      dx_row[c] = residual == nullptr ? gradient : residual[r * channels + c] + gradient;
    }
  });
}

}  // namespace

void run_on_host(const LayerNormForward& op, const Host& host) {
  const std::size_t count = product(op.shape.rows, op.shape.channels);
  const std::size_t row = product(op.shape.channels, 1);
  layernorm_forward(host.team, op.shape, In(op.x, count, host), In(op.gamma, row, host),
                    In(op.beta, row, host), Out(op.y, count, host), op.statistics);
}

void run_on_host(const LayerNormApply& op, const Host& host) {
  const std::size_t count = product(op.shape.rows, op.shape.channels);
  const std::size_t row = product(op.shape.channels, 1);
  layernorm_apply(host.team, op.shape, In(op.x, count, host), op.statistics,
                  In(op.gamma, row, host), In(op.beta, row, host), Out(op.y, count, host));
}

void run_on_host(const LayerNormBackward& op, const Host& host) {
  const std::size_t count = product(op.shape.rows, op.shape.channels);
  const In x(op.x, count, host), dy(op.dy, count, host);
  layernorm_backward_parameters(host.team, op.shape, x, op.statistics, dy, op.dgamma, op.dbeta);
  layernorm_backward_input(host.team, op.shape, x, op.statistics,
                           In(op.gamma, product(op.shape.channels, 1), host), dy,
                           In(op.residual, count, host), Out(op.dx, count, host));
}

}  // namespace weir::stage::ops
