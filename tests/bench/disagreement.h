// SPDX-License-Identifier: Apache-2.0
// How far the models of replicas are apart: from what their workers wrote down of their parameters
// (recording_stage.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weir::bench {

constexpr std::size_t kStride = 17;  // every 17th parameter, of all of a stage in a row

struct RecordHead {    // little-endian machines only; then so many floats
  double seconds = 0;  // CLOCK_MONOTONIC
  std::uint64_t count = 0;
};

struct Recorded {
  std::vector<double> seconds;  // rising
  std::vector<std::vector<float>> parameters;
};
// A record that is cut off at the end is left out. Nothing: the file cannot be read.
std::optional<Recorded> read_records(const std::string& file);

// Consensus error as in tests/sim/small_task.cpp: mean over replicas of the squared distance to
// their mean, over the mean's square; mean over `samples` moments from..to. workers:
// [replica][stage]. Negative: somebody has written nothing by `from`.
double consensus_error(const std::vector<std::vector<Recorded>>& workers, double from, double to,
                       int samples);

}  // namespace weir::bench
