// SPDX-License-Identifier: Apache-2.0
#include "tests/support/trace_check.h"

#include <algorithm>
#include <cmath>

namespace weir::test {
namespace {

using nlohmann::json;

std::int64_t nanos(const json& micros) {
  return std::llround(micros.get<double>() * 1e3);
}

void check_nesting(CheckedTrace& trace) {
  for (auto& [track, slices] : trace.tracks) {
    if (!trace.names.contains(track)) trace.errors.push_back("a track without a name");
    std::ranges::stable_sort(
        slices, {}, [](const TraceSlice& slice) { return std::pair(slice.begin, -slice.end); });
    std::vector<const TraceSlice*> open;
    for (const TraceSlice& slice : slices) {
      if (slice.end < slice.begin) trace.errors.push_back(slice.name + " ends before it begins");
      while (!open.empty() && open.back()->end <= slice.begin) open.pop_back();
      if (!open.empty() && slice.end > open.back()->end) {
        trace.errors.push_back(trace.names[track] + ": " + slice.name + " at " +
                               std::to_string(slice.begin) + " crosses the end of " +
                               open.back()->name);
      }
      open.push_back(&slice);
    }
  }
}

void check_arrows(CheckedTrace& trace) {
  for (const auto& [id, arrow] : trace.arrows) {
    const std::string name = "arrow " + std::to_string(id);
    if (!std::ranges::is_sorted(arrow.times)) trace.errors.push_back(name + " goes backwards");
    for (std::size_t i = 0; i < arrow.times.size(); ++i) {
      const auto& slices = trace.tracks[arrow.tracks[i]];
      const bool inside = std::ranges::any_of(slices, [&](const TraceSlice& slice) {
        return slice.begin <= arrow.times[i] && arrow.times[i] <= slice.end;
      });
      if (!inside) trace.errors.push_back(name + " has a point in no slice");
    }
  }
}

}  // namespace

int CheckedTrace::count(const std::string& category) const {
  int found = 0;
  for (const auto& [track, slices] : tracks) {
    found += static_cast<int>(std::ranges::count(slices, category, &TraceSlice::category));
  }
  return found;
}

CheckedTrace check_trace(const std::string& text) {
  CheckedTrace trace;
  const json document = json::parse(text, nullptr, false);
  if (!document.is_object() || !document.contains("traceEvents")) {
    trace.errors.emplace_back("no trace events");
    return trace;
  }
  std::map<std::int64_t, std::string> phases;  // of each arrow, in the order of the file
  for (const json& event : document["traceEvents"]) {
    const std::string phase = event.value("ph", "");
    const std::pair track(event.value("pid", -1), event.value("tid", -1));
    if (phase == "M") {
      if (event["name"] == "thread_name") trace.names[track] = event["args"]["name"];
    } else if (phase == "X") {
      const std::int64_t begin = nanos(event["ts"]);
      trace.tracks[track].push_back(
          {.name = event["name"],
           .category = event["cat"],
           .begin = begin,
           .end = nanos(event["ts"].get<double>() + event["dur"].get<double>()),
           .args = event.value("args", json::object())});
    } else if (phase == "s" || phase == "t" || phase == "f") {
      const auto id = event["id"].get<std::int64_t>();
      phases[id] += phase;
      trace.arrows[id].tracks.push_back(track);
      trace.arrows[id].times.push_back(nanos(event["ts"]));
    } else if (phase == "C") {
      ++trace.counters;
    } else if (phase != "i") {
      trace.errors.push_back("phase " + phase);
    }
  }
  for (const auto& [id, order] : phases) {
    if (order != "sf" && order != "stf") {
      trace.errors.push_back("arrow " + std::to_string(id) + " is " + order);
    }
  }
  check_nesting(trace);
  check_arrows(trace);
  return trace;
}

}  // namespace weir::test
