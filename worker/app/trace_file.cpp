// SPDX-License-Identifier: Apache-2.0
#include "worker/app/trace_file.h"

#include <cerrno>
#include <fstream>
#include <limits>
#include <utility>

#include "worker/base/file_error.h"
#include "worker/base/log.h"
#include "worker/base/numbers.h"
#include "worker/timeline/codec.h"

namespace weir::app {

Result<TraceSteps> parse_trace_steps(const std::string& text) {
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  const std::size_t dash = text.find('-');
  const auto first = parse_whole(text.substr(0, dash), 1, kMost);
  const auto last = parse_whole(dash == std::string::npos ? "" : text.substr(dash + 1), 1, kMost);
  if (!first || !last) return invalid("expected two step numbers FIRST-LAST, found " + text);
  if (*last < *first) return invalid("the last step of " + text + " is before the first");
  return TraceSteps{.first = *first, .last = *last};
}

void TraceFile::step_done(std::int64_t step, const engine::Engine& engine, const Clock& clock) {
  if (step > steps_.last) write(engine, clock);
}

void TraceFile::write(const engine::Engine& engine, const Clock& clock) {
  if (std::exchange(written_, true)) return;
  const timeline::RankRecord record =
      recorded_steps(engine, clock, names_, steps_.first - 1, steps_.last - 1);
  if (record.events.empty()) {
    log_warn("app", "no trace: this rank keeps nothing of these steps",
             {{"file", path_}, {"first", steps_.first}, {"last", steps_.last}});
    return;
  }
  errno = 0;
  std::ofstream file(path_, std::ios::binary | std::ios::trunc);
  file << timeline::encode(record);
  if (!file.flush()) {
    log_warn("app", "no trace", {{"reason", unwritable(path_).message}});
    return;
  }
  log_info("app", "trace written",
           {{"file", path_},
            {"first", record.events.front().step + 1},
            {"last", steps_.last},
            {"events", record.events.size()}});
}

}  // namespace weir::app
