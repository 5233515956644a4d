// SPDX-License-Identifier: Apache-2.0
// RFC 3339 as Kubernetes writes it: "2026-01-02T03:04:05Z" (Time) and with six digits (MicroTime).
// UTC only.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace weir {

std::string to_rfc3339(std::chrono::system_clock::time_point time);
std::string to_rfc3339_micro(std::chrono::system_clock::time_point time);
// Accepts a fraction of any length and offsets "+02:00"; nothing for any other text.
std::optional<std::chrono::system_clock::time_point> parse_rfc3339(std::string_view text);

}  // namespace weir
