// SPDX-License-Identifier: Apache-2.0
// SHA-256, HMAC-SHA-256, hex, base64 and random bytes. This file hides OpenSSL from the rest of the
// worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace weir {

std::string sha256_hex(std::string_view data);                            // 64 characters
std::string hmac_sha256(std::string_view key, std::string_view message);  // 32 raw bytes
bool equal_in_constant_time(std::string_view a, std::string_view b);
std::string random_bytes(std::size_t count);  // cryptographically strong
std::string to_hex(std::string_view raw);
std::optional<std::string> from_hex(std::string_view hex);
std::string to_base64(std::string_view raw);
std::optional<std::string> from_base64(std::string_view text);  // white space is ignored
std::uint32_t crc32c(std::span<const std::byte> data);          // Castagnoli, as in RFC 3720

}  // namespace weir
