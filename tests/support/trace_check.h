// SPDX-License-Identifier: Apache-2.0
// A strict reader of Chrome trace events: what a viewer would draw wrong or drop is an error here.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace weir::test {

struct TraceSlice {
  std::string name, category;
  std::int64_t begin = 0, end = 0;  // nanoseconds
  nlohmann::json args;
};
struct TraceArrow {
  std::vector<std::pair<int, int>> tracks;  // pid, tid: start, over the link, end
  std::vector<std::int64_t> times;          // nanoseconds
};

struct CheckedTrace {
  std::vector<std::string> errors;
  std::map<std::pair<int, int>, std::vector<TraceSlice>> tracks;  // by pid and tid
  std::map<std::pair<int, int>, std::string> names;
  std::map<std::int64_t, TraceArrow> arrows;
  int counters = 0;
  int count(const std::string& category) const;
};

// Errors: slices of a track that overlap without one lying in the other, tracks without a name, an
// arrow without start or end, one whose points lie in no slice or go backwards in time, a negative
// duration, an unknown phase.
CheckedTrace check_trace(const std::string& text);

}  // namespace weir::test
