// SPDX-License-Identifier: Apache-2.0
// Reads the file of --pace-trace: lines "time-seconds share".
#include <fstream>
#include <sstream>
#include <string>

#include "worker/base/file_error.h"
#include "worker/base/units.h"
#include "worker/transport/tcp/tcp_transport.h"

namespace weir::transport {
namespace {

constexpr std::size_t kMaxLines = 1'000'000;
constexpr double kMaxSeconds = 1e9;

using Edge = std::pair<std::chrono::nanoseconds, double>;

// Returns an error text if the line is wrong, else "".
std::string parse_line(const std::string& line, Edge& edge) {
  std::istringstream in(line);
  double seconds = 0;
  double share = 0;
  std::string rest;
  if (!(in >> seconds >> share)) return "not 'time-seconds share'";
  if (in >> rest) return "something after the share: " + rest;
  if (!(seconds >= 0 && seconds <= kMaxSeconds)) return "time is below 0 or too large";
  if (!(share > 0 && share <= 1)) return "share is not in (0, 1]";
  edge = {from_seconds(seconds), share};
  return {};
}

}  // namespace

Result<std::vector<std::pair<std::chrono::nanoseconds, double>>> read_pace_trace(
    const std::string& path) {
  std::ifstream file(path);
  if (!file) return unreadable(path);
  std::vector<Edge> trace;
  std::string line;
  for (std::size_t number = 1; std::getline(file, line); ++number) {
    const std::string place = path + ":" + std::to_string(number) + ": ";
    if (number > kMaxLines) return invalid(place + "too many lines");
    line.resize(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Edge edge;
    const std::string wrong = parse_line(line, edge);
    if (!wrong.empty()) return invalid(place + wrong);
    if (!trace.empty() && edge.first <= trace.back().first) {
      return invalid(place + "times do not rise");
    }
    trace.push_back(edge);
  }
  return trace;
}

}  // namespace weir::transport
