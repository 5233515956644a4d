// SPDX-License-Identifier: Apache-2.0
#include "worker/base/digest.h"

#include <array>
#include <cctype>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include "worker/base/check.h"

namespace weir {
namespace {

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
std::string to_string(const unsigned char* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
    table[i] = crc;
  }
  return table;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string sha256_hex(std::string_view data) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(bytes_of(data), data.size(), digest.data());
  return to_hex(to_string(digest.data(), digest.size()));
}

std::string hmac_sha256(std::string_view key, std::string_view message) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  unsigned int length = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes_of(message), message.size(),
       digest.data(), &length);
  WEIR_CHECK(length == digest.size(), "HMAC-SHA-256 is 32 bytes");
  return to_string(digest.data(), digest.size());
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_bytes(std::size_t count) {
  std::string out(count, '\0');
  WEIR_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(count)) == 1,
             "the system has random numbers");
  return out;
}

std::string to_hex(std::string_view raw) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(raw.size() * 2);
  for (const char c : raw) {
    const auto byte = static_cast<unsigned char>(c);
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::optional<std::string> from_hex(std::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  std::string out;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const int high = hex_digit(hex[i]);
    const int low = hex_digit(hex[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
  }
  return out;
}

std::string to_base64(std::string_view raw) {
  std::string out(4 * ((raw.size() + 2) / 3) + 1, '\0');
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()), bytes_of(raw),
                                     static_cast<int>(raw.size()));
  out.resize(static_cast<std::size_t>(length));
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  std::string clean;
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) clean += c;
  }
  if (clean.size() % 4 != 0) return std::nullopt;
  std::string out(clean.size() / 4 * 3 + 1, '\0');
  const int length = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()), bytes_of(clean),
                                     static_cast<int>(clean.size()));
  if (length < 0) return std::nullopt;
  std::size_t size = static_cast<std::size_t>(length);
  for (std::size_t i = 0; i < 2 && i < clean.size(); ++i) {
    if (clean[clean.size() - 1 - i] == '=') --size;
  }
  out.resize(size);
  return out;
}

std::uint32_t crc32c(std::span<const std::byte> data) {
  static constexpr auto kTable = make_crc_table();
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const std::byte b : data) {
    crc = (crc >> 8) ^ kTable[(crc ^ std::to_integer<std::uint32_t>(b)) & 0xFF];
  }
  return crc ^ 0xFFFFFFFFU;
}

}  // namespace weir
