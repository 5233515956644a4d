// SPDX-License-Identifier: Apache-2.0
#include "operator/metrics/matrix.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "operator/metrics/answer.h"

namespace weir::metrics {
namespace {

using nlohmann::json;

SystemTime time_of(double unix_seconds) {
  // Prometheus has milliseconds; rounding makes equal grid points equal.
  return SystemTime(std::chrono::milliseconds(std::llround(unix_seconds * 1000)));
}

// "NaN", "+Inf" and texts that are no number give a value that is not finite.
double value_of(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return end == text.c_str() ? std::nan("") : value;
}

Result<Series> decode_series(const json& entry) {
  if (!entry.is_object()) return bad_answer("a series is not an object");
  Series series;
  if (const auto labels = entry.find("metric"); labels != entry.end() && labels->is_object()) {
    for (const auto& [name, value] : labels->items()) {
      if (!value.is_string()) return bad_answer("label " + name + " is not a text");
      series.labels[name] = value.get<std::string>();
    }
  }
  const auto values = entry.find("values");
  if (values == entry.end()) return series;  // the series has only native histograms
  if (!values->is_array()) return bad_answer("values is not a list");
  constexpr double kLastTime = 9e9;  // seconds, the year 2255; SystemTime overflows in 2262
  for (const auto& point : *values) {
    if (!point.is_array() || point.size() != 2 || !point[0].is_number() || !point[1].is_string()) {
      return bad_answer("a point is not [time, \"value\"]");
    }
    const double time = point[0].get<double>();
    const double value = value_of(point[1].get<std::string>());
    if (!(std::abs(time) <= kLastTime)) return bad_answer("a time is out of range");
    if (std::isfinite(value)) series.points.emplace_back(time_of(time), value);
  }
  std::ranges::stable_sort(series.points, {}, &decltype(series.points)::value_type::first);
  return series;
}

}  // namespace

const std::string& Series::label(const std::string& name) const {
  static const std::string kNone;
  const auto found = labels.find(name);
  return found == labels.end() ? kNone : found->second;
}

Result<Matrix> decode_matrix(std::string_view text) {
  WEIR_TRY(const json root, decode_result(text, "matrix"));
  Matrix matrix;
  for (const auto& entry : root["data"]["result"]) {
    WEIR_TRY(Series series, decode_series(entry));
    matrix.series.push_back(std::move(series));
  }
  if (const auto warnings = root.find("warnings"); warnings != root.end() && warnings->is_array()) {
    for (const auto& warning : *warnings) {
      if (!warning.is_string()) continue;
      matrix.warnings += (matrix.warnings.empty() ? "" : "; ") + warning.get<std::string>();
    }
  }
  return matrix;
}

}  // namespace weir::metrics
