// SPDX-License-Identifier: Apache-2.0
// Three products and a column sum.
#include <algorithm>

#include "worker/stage/ops/gemm.h"
#include "worker/stage/ops/host_operands.h"
#include "worker/stage/ops/linear.h"

namespace weir::stage::ops {
namespace {

using Index = Team::Index;

void linear_forward(Team& team, LinearShape shape, const float* x, const float* weight,
                    const float* bias, const float* residual, float* y) {
  const Index outputs = shape.outputs;
  team.run(shape.rows, least_rows(outputs), [&](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) {
      float* row = y + r * outputs;
      if (residual == nullptr) {
        std::fill_n(row, outputs, 0.0F);
      } else if (residual != y) {
        std::copy_n(residual + r * outputs, outputs, row);
      }
      if (bias == nullptr) continue;
      for (Index o = 0; o < outputs; ++o) row[o] += bias[o];
    }
  });
  gemm(team, {shape.rows, shape.outputs, shape.inputs}, rows_of(x, shape.inputs),
       transposed(rows_of(weight, shape.inputs)), y, outputs, Sum::kAdd);
}

void linear_backward_parameters(Team& team, LinearShape shape, const float* x, const float* dy,
                                float* dweight, float* dbias) {
  gemm(team, {shape.outputs, shape.inputs, shape.rows}, transposed(rows_of(dy, shape.outputs)),
       rows_of(x, shape.inputs), dweight, shape.inputs, Sum::kReplace);
  if (dbias == nullptr) return;
  team.run(shape.outputs, least_columns(shape.rows), [&](Index begin, Index end) {
    std::fill(dbias + begin, dbias + end, 0.0F);
    for (Index r = 0; r < shape.rows; ++r) {
      const float* row = dy + r * shape.outputs;
      for (Index o = begin; o < end; ++o) dbias[o] += row[o];
    }
  });
}

void linear_backward_input(Team& team, LinearShape shape, const float* dy, const float* weight,
                           float* dx) {
  gemm(team, {shape.rows, shape.inputs, shape.outputs}, rows_of(dy, shape.outputs),
       rows_of(weight, shape.inputs), dx, shape.inputs, Sum::kReplace);
}

}  // namespace

void run_on_host(const LinearForward& op, const Host& host) {
  const LinearShape s = op.shape;
  const std::size_t outputs = product(s.rows, s.outputs);
  linear_forward(host.team, s, In(op.x, product(s.rows, s.inputs), host),
                 In(op.weight, product(s.outputs, s.inputs), host),
                 In(op.bias, product(s.outputs, 1), host), In(op.residual, outputs, host),
                 Out(op.y, outputs, host));
}

void run_on_host(const LinearBackwardParameters& op, const Host& host) {
  const LinearShape s = op.shape;
  linear_backward_parameters(host.team, s, In(op.x, product(s.rows, s.inputs), host),
                             In(op.dy, product(s.rows, s.outputs), host), op.dweight, op.dbias);
}

void run_on_host(const LinearBackwardInput& op, const Host& host) {
  const LinearShape s = op.shape;
  linear_backward_input(host.team, s, In(op.dy, product(s.rows, s.outputs), host),
                        In(op.weight, product(s.outputs, s.inputs), host),
                        Out(op.dx, product(s.rows, s.inputs), host));
}

}  // namespace weir::stage::ops
