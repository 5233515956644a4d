// SPDX-License-Identifier: Apache-2.0
#include "worker/emulate/slowness.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "worker/base/file_error.h"
#include "worker/base/units.h"

namespace weir::emulate {
namespace {

constexpr std::size_t kMostLines = 1'000'000;
constexpr double kMostTimes = 1000;
constexpr double kLatest = 1e9;  // steps or seconds

struct Line {
  double from = 0, factor = 0;
  bool by_time = false;
};

// Returns an error text if the line is wrong, else "".
std::string parse(const std::string& text, Line& line) {
  std::istringstream in(text);
  std::string from, rest;
  if (!(in >> from >> line.factor)) return "not 'step factor' or '1.5s factor'";
  if (in >> rest) return "something after the factor: " + rest;
  line.by_time = from.ends_with('s');
  if (line.by_time) from.pop_back();
  std::istringstream number(from);
  const bool read = number >> line.from && number.eof();
  const bool whole = line.by_time || line.from == std::floor(line.from);
  if (!read || !whole || !(line.from >= 0 && line.from <= kLatest)) {
    return from + " is neither a step nor a time";
  }
  if (!(line.factor > 0 && line.factor <= kMostTimes)) return "the factor is not in (0, 1000]";
  return "";
}

}  // namespace

Result<Slowness> Slowness::read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return unreadable(path);
  Slowness slowness;
  std::string text;
  for (std::size_t number = 1; std::getline(file, text); ++number) {
    const auto wrong = [&](const std::string& why) {
      return invalid(path + ":" + std::to_string(number) + ": " + why);
    };
    if (number > kMostLines) return wrong("too many lines");
    text.resize(std::min(text.find('#'), text.size()));
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    Line line;
    const std::string reason = parse(text, line);
    if (!reason.empty()) return wrong(reason);
    const bool first = slowness.changes_.empty();
    if (!first && line.by_time != slowness.by_time_) return wrong("steps and times are mixed");
    if (!first && line.from <= slowness.changes_.back().first) return wrong("it does not rise");
    slowness.by_time_ = line.by_time;
    slowness.changes_.emplace_back(line.from, line.factor);
  }
  return slowness;
}

double Slowness::factor(std::int64_t step, std::chrono::nanoseconds since_start) const {
  const double now = by_time_ ? to_seconds(since_start) : static_cast<double>(step);
  const auto after = std::ranges::upper_bound(changes_, now, {}, &std::pair<double, double>::first);
  return after == changes_.begin() ? 1 : std::prev(after)->second;
}

}  // namespace weir::emulate
