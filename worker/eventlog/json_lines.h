// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one JSON object per step, in the order of steps, each step once; and one per
// validation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "worker/base/result.h"
#include "worker/eventlog/append_file.h"
#include "worker/eventlog/entry.h"

namespace weir::eventlog {

// With a newline at its end. Pure.
std::string json_line(const Entry& entry);
// The step of a line of such a file; nothing for any other text. Pure.
std::optional<std::int64_t> step_of(std::string_view line);

class JsonLines {
 public:
  // Opens metrics.jsonl of the folder, or the first of metrics-1.jsonl, metrics-2.jsonl .. that is
  // ours: one that begins with another kind of line is kept as it is. An incomplete last line is
  // cut.
  static Result<std::unique_ptr<JsonLines>> open(const std::string& folder);

  Status append(const Entry& entry);
  // Cuts all lines of steps above `step`. Cost: reads what it cuts.
  Status cut_behind(std::int64_t step);

 private:
  explicit JsonLines(std::unique_ptr<AppendFile> file) : file_(std::move(file)) {}

  std::unique_ptr<AppendFile> file_;
};

}  // namespace weir::eventlog
