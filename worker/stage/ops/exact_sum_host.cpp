// SPDX-License-Identifier: Apache-2.0
// Plain loops that the compiler vectorises. Elements are independent.
#include "worker/stage/ops/exact_sum.h"
#include "worker/stage/ops/host_operands.h"

namespace weir::stage::ops {
namespace {

void add_exactly(std::size_t count, const float* __restrict terms, double* __restrict sums) {
  constexpr double kMagic = 0x1.8p8;  // its last bit is worth 2^-44, so adding it rounds to that
  for (std::size_t i = 0; i < count; ++i) {
    sums[i] += (static_cast<double>(terms[i]) + kMagic) - kMagic;
  }
}

void round_sums(std::size_t count, const double* __restrict sums, float* __restrict values) {
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(sums[i]);
}

void join_sums(std::size_t count, double* __restrict first, double* __restrict last) {
  for (std::size_t i = 0; i < count; ++i) first[i] = last[i] = first[i] + last[i];
}

}  // namespace

void run_on_host(const AddExactly& op, const Host& host) {
  for_elements(host.team, op.count, [&](Team::Index begin, Team::Index end) {
    add_exactly(static_cast<std::size_t>(end - begin), op.terms + begin, op.sums + begin);
  });
}

void run_on_host(const RoundSums& op, const Host& host) {
  for_elements(host.team, op.count, [&](Team::Index begin, Team::Index end) {
    round_sums(static_cast<std::size_t>(end - begin), op.sums + begin, op.values + begin);
  });
}

void run_on_host(const JoinSums& op, const Host& host) {
  for_elements(host.team, op.count, [&](Team::Index begin, Team::Index end) {
    join_sums(static_cast<std::size_t>(end - begin), op.first + begin, op.last + begin);
  });
}

}  // namespace weir::stage::ops
