// SPDX-License-Identifier: Apache-2.0
// Three products and a column sum.
#include <algorithm>

#include "worker/stage/ops/gemm.h"
#include "worker/stage/ops/host_operands.h"
#include "worker/stage/ops/linear.h"

namespace weir::stage::ops {
namespace {

void linear_forward(LinearShape shape, const float* x, const float* weight, const float* bias,
                    const float* residual, float* y) {
  const std::ptrdiff_t outputs = shape.outputs;
  for (std::ptrdiff_t r = 0; r < shape.rows; ++r) {
    float* row = y + r * outputs;
    if (residual == nullptr) {
      std::fill_n(row, outputs, 0.0F);
    } else if (residual != y) {
      std::copy_n(residual + r * outputs, outputs, row);
    }
    if (bias == nullptr) continue;
    for (std::ptrdiff_t o = 0; o < outputs; ++o) row[o] += bias[o];
  }
  gemm({shape.rows, shape.outputs, shape.inputs}, rows_of(x, shape.inputs),
       transposed(rows_of(weight, shape.inputs)), y, outputs, Sum::kAdd);
}

void linear_backward_parameters(LinearShape shape, const float* x, const float* dy, float* dweight,
                                float* dbias) {
  gemm({shape.outputs, shape.inputs, shape.rows}, transposed(rows_of(dy, shape.outputs)),
       rows_of(x, shape.inputs), dweight, shape.inputs, Sum::kAdd);
  if (dbias == nullptr) return;
  for (std::ptrdiff_t r = 0; r < shape.rows; ++r) {
    const float* row = dy + r * shape.outputs;
    for (std::ptrdiff_t o = 0; o < shape.outputs; ++o) dbias[o] += row[o];
  }
}

void linear_backward_input(LinearShape shape, const float* dy, const float* weight, float* dx) {
  gemm({shape.rows, shape.inputs, shape.outputs}, rows_of(dy, shape.outputs),
       rows_of(weight, shape.inputs), dx, shape.inputs, Sum::kReplace);
}

}  // namespace

void run_on_host(const LinearForward& op, Precision precision) {
  const LinearShape s = op.shape;
  const std::size_t outputs = product(s.rows, s.outputs);
  linear_forward(s, In(op.x, product(s.rows, s.inputs), precision),
                 In(op.weight, product(s.outputs, s.inputs), precision),
                 In(op.bias, product(s.outputs, 1), precision), In(op.residual, outputs, precision),
                 Out(op.y, outputs, precision));
}

void run_on_host(const LinearBackwardParameters& op, Precision precision) {
  const LinearShape s = op.shape;
  linear_backward_parameters(s, In(op.x, product(s.rows, s.inputs), precision),
                             In(op.dy, product(s.rows, s.outputs), precision), op.dweight,
                             op.dbias);
}

void run_on_host(const LinearBackwardInput& op, Precision precision) {
  const LinearShape s = op.shape;
  linear_backward_input(s, In(op.dy, product(s.rows, s.outputs), precision),
                        In(op.weight, product(s.outputs, s.inputs), precision),
                        Out(op.dx, product(s.rows, s.inputs), precision));
}

}  // namespace weir::stage::ops
