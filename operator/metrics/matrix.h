// SPDX-License-Identifier: Apache-2.0
// The answer of Prometheus to query_range as structs. The answer is not trusted. Pure.
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
  const std::string& label(const std::string& name) const;  // "" = absent
};
struct Matrix {
  std::vector<Series> series;
  std::string warnings;  // joined by "; "
};

// kInvalid: the text is not the JSON of a matrix. kUnavailable: an error that Prometheus reports.
Result<Matrix> decode_matrix(std::string_view json);

}  // namespace weir::metrics
