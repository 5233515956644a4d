// SPDX-License-Identifier: Apache-2.0
// Reads /proc/meminfo and the files of the memory controller as they are mounted in a container.
#include "worker/device/system_memory.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "worker/base/file_text.h"

namespace weir::device {
namespace {

constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;  // v1 writes 2^63 rounded down to a page

std::optional<std::int64_t> first_of(const char* version2, const char* version1) {
  const auto value = cgroup_bytes(file_text(version2));
  return value ? value : cgroup_bytes(file_text(version1));
}

}  // namespace

std::optional<std::int64_t> meminfo_bytes(std::string_view text, std::string_view field) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.starts_with(field) || line.size() <= field.size() || line[field.size()] != ':') {
      continue;
    }
    const auto start = line.find_first_of("0123456789", field.size());
    std::int64_t kilobytes = 0;
    if (start == std::string_view::npos ||
        std::from_chars(line.data() + start, line.data() + line.size(), kilobytes).ec !=
            std::errc{}) {
      return std::nullopt;
    }
    return kilobytes * 1024;
  }
  return std::nullopt;
}

std::optional<std::int64_t> cgroup_bytes(std::string_view text) {
  std::int64_t value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{}) {
    return std::nullopt;
  }
  return value < kNoLimit ? std::optional(value) : std::nullopt;
}

std::optional<std::int64_t> stat_bytes(std::string_view text, std::string_view field) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.starts_with(field) || line.size() <= field.size() || line[field.size()] != ' ') {
      continue;
    }
    return cgroup_bytes(line.substr(field.size() + 1));
  }
  return std::nullopt;
}

SystemMemory read_system_memory() {
  const std::string text = file_text("/proc/meminfo");
  SystemMemory memory{.total = meminfo_bytes(text, "MemTotal").value_or(0),
                      .free = meminfo_bytes(text, "MemAvailable").value_or(0)};
  const auto limit =
      first_of("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes");
  const auto used =
      first_of("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes");
  if (limit && *limit < memory.total) {
    // Cached file pages count as used until the memory is needed.
    const std::int64_t droppable =
        stat_bytes(file_text("/sys/fs/cgroup/memory.stat"), "inactive_file")
            .value_or(
                stat_bytes(file_text("/sys/fs/cgroup/memory/memory.stat"), "total_inactive_file")
                    .value_or(0));
    memory.total = *limit;
    memory.free =
        std::min(memory.free, std::max<std::int64_t>(0, *limit - used.value_or(0) + droppable));
  }
  return memory;
}

}  // namespace weir::device
