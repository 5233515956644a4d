// SPDX-License-Identifier: Apache-2.0
// The answer of Prometheus to query_range as structs. Pure; the answer is not trusted.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/base/clock.h"
#include "worker/base/result.h"

namespace weir::metrics {

struct Series {
  std::map<std::string, std::string> labels;
  std::vector<std::pair<SystemTime, double>> points;        // finite values only, oldest first
  const std::string& label(const std::string& name) const;  // "" when absent
};
struct Matrix {
  std::vector<Series> series;
  std::string warnings;  // joined, "" = none
};

// kInvalid: not the JSON of a matrix. kUnavailable "bad_data: parse error ...": Prometheus' own
// error.
Result<Matrix> decode_matrix(std::string_view json);

}  // namespace weir::metrics
