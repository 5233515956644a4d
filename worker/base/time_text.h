// SPDX-License-Identifier: Apache-2.0
// RFC 3339 times as Kubernetes writes them: "2026-01-02T03:04:05Z" (Time) and with six digits of
// the second (MicroTime). UTC only.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace weir {

std::string to_rfc3339(std::chrono::system_clock::time_point time);
std::string to_rfc3339_micro(std::chrono::system_clock::time_point time);
// Accepts a fraction of any length, and offsets such as "+02:00". Returns nothing for any other
// text.
std::optional<std::chrono::system_clock::time_point> parse_rfc3339(std::string_view text);

}  // namespace weir
