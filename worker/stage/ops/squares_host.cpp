// SPDX-License-Identifier: Apache-2.0
// Lanes are processed side by side, so that the compiler vectorises the inner loop.
#include <algorithm>
#include <array>
#include <vector>

#include "worker/stage/ops/squares.h"
#include "worker/stage/ops/team.h"

namespace weir::stage::ops {
namespace {

constexpr std::size_t kLanes = kSquaresLanes, kChunk = kSquaresChunk;

// The sum of one chunk; term(i) is what value i adds.
template <class Term>
double sum_chunk(std::size_t count, Term term) {
  std::array<double, kLanes> lanes{};
  for (std::size_t begin = 0; begin < count; begin += kLanes) {
    const std::size_t width = std::min(kLanes, count - begin);
    for (std::size_t lane = 0; lane < width; ++lane) lanes[lane] += term(begin + lane);
  }
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

}  // namespace

void run_on_host(const SumSquares& op, const Host& host) {
  std::vector<double> chunks((op.count + kChunk - 1) / kChunk);
  with_numbers(op.values, [&](const auto* numbers) {
    const auto sum_of = [&op, numbers](std::size_t chunk) {
      const auto* own = numbers + chunk * kChunk;
      return sum_chunk(std::min(kChunk, op.count - chunk * kChunk), [own](std::size_t i) {
        const double value{static_cast<float>(own[i])};
        return value * value;
      });
    };
    host.team.run(std::ssize(chunks), 1, [&](Team::Index begin, Team::Index end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        chunks[i] = sum_of(i);
      }
    });
  });
  *op.sum = sum_chunk(chunks.size(), [&chunks](std::size_t i) { return chunks[i]; });
}

}  // namespace weir::stage::ops
