// SPDX-License-Identifier: Apache-2.0
#include "worker/eventlog/json_lines.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "worker/base/text.h"
#include "worker/base/time_text.h"

namespace weir::eventlog {
namespace {

constexpr std::size_t kLongestLine = 4096;  // ours have some 250 bytes
constexpr int kMostNames = 100;
constexpr std::string_view kStart = "{\"step\":";

std::string real(double value) {
  return std::isfinite(value) ? format("%.9g", value) : "null";
}

// Where the last line of the first `size` bytes begins. It may be without its newline.
Result<std::int64_t> start_of_last_line(const AppendFile& file, std::int64_t size) {
  const std::int64_t from =
      std::max<std::int64_t>(0, size - static_cast<std::int64_t>(kLongestLine));
  WEIR_TRY(const std::string text, file.read(from, static_cast<std::size_t>(size - from)));
  const std::size_t newline =
      text.size() < 2 ? std::string::npos : text.rfind('\n', text.size() - 2);
  if (newline != std::string::npos) return from + static_cast<std::int64_t>(newline) + 1;
  if (from > 0) return invalid("a line is above 4096 bytes");
  return std::int64_t{0};
}

// True if the file is empty or begins with a line of ours. An incomplete first line counts if it
// begins as ours do.
Result<bool> is_ours(const AppendFile& file) {
  WEIR_TRY(const std::string head, file.read(0, kLongestLine));
  const std::size_t end = head.find('\n');
  if (end != std::string::npos) return step_of(std::string_view(head).substr(0, end)).has_value();
  return head.size() < kLongestLine &&
         std::string_view(head).starts_with(kStart.substr(0, std::min(head.size(), kStart.size())));
}

Status cut_incomplete_line(AppendFile& file) {
  if (file.size() == 0) return Unit{};
  WEIR_TRY(const std::string last, file.read(file.size() - 1, 1));
  if (last == "\n") return Unit{};
  WEIR_TRY(const std::int64_t start, start_of_last_line(file, file.size()));
  return file.cut(start);
}

}  // namespace

std::string json_line(const Entry& entry) {
  const std::string begin = std::string(kStart) + std::to_string(entry.step) + ",\"time\":\"" +
                            to_rfc3339_micro(entry.time) + "\",";
  if (entry.validation_loss) {
    return begin + "\"validationLoss\":" + real(*entry.validation_loss) + "}\n";
  }
  return begin + "\"loss\":" + real(entry.loss) + ",\"learningRate\":" + real(entry.learning_rate) +
         ",\"stepSeconds\":" + real(entry.seconds) +
         ",\"samplesPerSecond\":" + real(samples_per_second(entry)) +
         ",\"tokens\":" + std::to_string(entry.tokens) + ",\"k\":" + std::to_string(entry.k) +
         ",\"revision\":" + std::to_string(entry.revision) + "}\n";
}

std::optional<std::int64_t> step_of(std::string_view line) {
  if (!line.starts_with(kStart) || !line.ends_with('}')) return std::nullopt;
  line.remove_prefix(kStart.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
  const bool good =
      error == std::errc{} && end != line.data() && step >= 0 && (*end == ',' || *end == '}');
  return good ? std::optional(step) : std::nullopt;
}

Result<std::unique_ptr<JsonLines>> JsonLines::open(const std::string& folder) {
  for (int i = 0; i < kMostNames; ++i) {
    const std::string name = i == 0 ? "metrics.jsonl" : format("metrics-%d.jsonl", i);
    WEIR_TRY(auto file, AppendFile::open(std::string(folder).append("/").append(name), false));
    WEIR_TRY(const bool ours, is_ours(*file));
    if (!ours) continue;
    WEIR_OK(cut_incomplete_line(*file));
    return std::unique_ptr<JsonLines>(new JsonLines(std::move(file)));
  }
  return invalid(folder + ": 100 files metrics*.jsonl are of something else");
}

Status JsonLines::append(const Entry& entry) {
  return file_->append(json_line(entry));
}

Status JsonLines::cut_behind(std::int64_t step) {
  std::int64_t size = file_->size();
  while (size > 0) {
    WEIR_TRY(const std::int64_t start, start_of_last_line(*file_, size));
    WEIR_TRY(std::string line, file_->read(start, static_cast<std::size_t>(size - start)));
    if (line.ends_with('\n')) line.pop_back();
    const auto of_line = step_of(line);
    if (of_line && *of_line <= step) break;
    size = start;
  }
  return size == file_->size() ? Status(Unit{}) : file_->cut(size);
}

}  // namespace weir::eventlog
