// SPDX-License-Identifier: Apache-2.0
// Sums of gradients that do not depend on the order of their terms, so that the result of a step is
// bit-equal however its micro-batches are divided among replicas (sync.mode Exact). Each term is
// rounded to a multiple of 2^-44 and added in double. Sums of such multiples have no rounding error
// below 2^9, so the order does not matter. Idea: Demmel and Nguyen, "Fast reproducible
// floating-point summation", 2013, with one bin at a fixed place.
//
// Gradients are those of the mean loss. The error of a term is at most 2^-45 = 2.8e-14. For AdamW
// with epsilon 1e-8 this is at most 3e-6 of its rate, for any gradient. Above 2^9 sums are as exact
// as doubles are, but the order matters.
#pragma once

#include "worker/stage/ops/element.h"

namespace weir::stage::ops {

// sums[i] += terms[i], rounded as above.
struct AddExactly {
  std::size_t count;
  const float* terms;
  double* sums;
  auto fields() const { return std::tie(count, terms, sums); }
};
void run_on_host(const AddExactly& op, const Host& host);
void run_on_cuda(const AddExactly& op, CudaQueue& queue);

// values[i] = the float nearest to sums[i].
struct RoundSums {
  std::size_t count;
  const double* sums;
  float* values;
  auto fields() const { return std::tie(count, sums, values); }
};
void run_on_host(const RoundSums& op, const Host& host);
void run_on_cuda(const RoundSums& op, CudaQueue& queue);

// The gradient of a step as its update reads it: sums, each rounded to the nearest float on the
// way, or values that have been made of them. One of the two is not null.
struct StepGradient {
  StepGradient() = default;
  StepGradient(const float* of_values) : values(of_values) {}
  StepGradient(const double* of_sums) : sums(of_sums) {}
  const float* values = nullptr;
  const double* sums = nullptr;
};
// f(pointer to the values or to the sums); static_cast<float> rounds either.
template <class F>
void with_numbers(const StepGradient& gradient, F f) {
  if (gradient.sums != nullptr) {
    f(gradient.sums);
  } else {
    f(gradient.values);
  }
}

// first[i] and last[i] become their sum: of a table that two layers share.
struct JoinSums {
  std::size_t count;
  double* first;
  double* last;
  auto fields() const { return std::tie(count, first, last); }
};
void run_on_host(const JoinSums& op, const Host& host);
void run_on_cuda(const JoinSums& op, CudaQueue& queue);

}  // namespace weir::stage::ops
