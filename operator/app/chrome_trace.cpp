// SPDX-License-Identifier: Apache-2.0
#include "operator/app/chrome_trace.h"

#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "worker/schedule/dispatch.h"

namespace weir::operator_app {
namespace {

using nlohmann::ordered_json;

double micros(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) / 1e3;
}

ordered_json track_name(std::size_t process, int track, const std::string& name) {
  return {{"ph", "M"},
          {"name", "thread_name"},
          {"pid", process},
          {"tid", track},
          {"args", {{"name", name}}}};
}

ordered_json slice(const std::string& name, const char* category, std::size_t process, int track,
                   std::chrono::nanoseconds start, std::chrono::nanoseconds end, int micro_batch) {
  return {{"ph", "X"},
          {"name", name},
          {"cat", category},
          {"pid", process},
          {"tid", track},
          {"ts", micros(start)},
          {"dur", micros(end - start)},
          {"args", {{"microBatch", micro_batch}}}};
}

}  // namespace

std::string chrome_trace(const planner::SimulatedPlan& simulated) {
  ordered_json events = ordered_json::array();
  for (std::size_t r = 0; r < simulated.replicas.size(); ++r) {
    const schedule::Timeline& line = simulated.replicas[r].timeline;
    const int stages = static_cast<int>(line.busy.size());
    events.push_back({{"ph", "M"},
                      {"name", "process_name"},
                      {"pid", r},
                      {"args", {{"name", "replica " + std::to_string(r)}}}});
    // Stage s is on track 3s and its links to stage s+1 on 3s+1 and 3s+2, so that what belongs
    // together is shown together.
    for (int s = 0; s < stages; ++s) {
      const std::string name = std::to_string(s), next = std::to_string(s + 1);
      events.push_back(track_name(r, 3 * s, "stage " + name));
      if (s + 1 == stages) break;
      events.push_back(track_name(r, 3 * s + 1, "link " + name + " -> " + next));
      events.push_back(track_name(r, 3 * s + 2, "link " + next + " -> " + name));
    }
    for (const schedule::TimedOp& op : line.ops) {
      constexpr std::array<std::pair<const char*, const char*>, schedule::kOpKinds> kNames{
          {{"F", "forward"}, {"B", "backward"}, {"W", "weights"}}};
      const auto& [letter, kind] = kNames[static_cast<std::size_t>(op.op.kind)];
      events.push_back(slice(letter + std::to_string(op.op.micro_batch), kind, r, 3 * op.stage,
                             op.start, op.end, op.op.micro_batch));
    }
    for (const schedule::TimedSend& send : line.sends) {
      events.push_back(slice((send.forward ? "act " : "grad ") + std::to_string(send.micro_batch),
                             "send", r, 3 * send.boundary + (send.forward ? 1 : 2), send.start,
                             send.end, send.micro_batch));
    }
  }
  const ordered_json document = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return document.dump() + "\n";
}

}  // namespace weir::operator_app
