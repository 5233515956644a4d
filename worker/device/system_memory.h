// SPDX-License-Identifier: Apache-2.0
// Memory that this process may use: the container's limit (cgroup v2 or v1) or the machine's
// memory, whichever is less. The parsers take text, so that tests need no container. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weir::device {

struct SystemMemory {
  std::int64_t total = 0;  // bytes
  std::int64_t free = 0;   // bytes; includes file pages that the kernel could drop
};

SystemMemory read_system_memory();

// Reads a field of /proc/meminfo ("MemTotal", given in kB) in bytes.
std::optional<std::int64_t> meminfo_bytes(std::string_view text, std::string_view field);
// Reads a cgroup's limit file in bytes. Nothing for "max", for the v1 value of "no limit" (near
// 2^63), and for other text.
std::optional<std::int64_t> cgroup_bytes(std::string_view text);

// Reads a field of a cgroup's memory.stat (e.g. "inactive_file") in bytes.
std::optional<std::int64_t> stat_bytes(std::string_view text, std::string_view field);

}  // namespace weir::device
