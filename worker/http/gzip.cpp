// SPDX-License-Identifier: Apache-2.0
#include "worker/http/gzip.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>

#include <boost/beast/zlib/deflate_stream.hpp>
#include <boost/crc.hpp>

#include "worker/base/check.h"

namespace weir::http {
namespace {

namespace zlib = boost::beast::zlib;

constexpr std::string_view kHead("\x1f\x8b\x08\0\0\0\0\0\0\xff",
                                 10);         // deflate, no time, unknown system
constexpr int kLevel = 1;                     // any level shrinks the text of metrics to a tenth
constexpr int kWindowBits = 15, kMemory = 8;  // zlib's defaults

void append_u32(std::string& out, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(value >> shift & 0xFF);
}

std::string trimmed(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != ' ' && c != '\t')
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

// True for "q=0" and "q=0.000".
bool is_zero(std::string_view weight) {
  return weight.starts_with("q=0") && weight.find_first_not_of("0.", 2) == weight.npos;
}

}  // namespace

std::string gzip(std::string_view text) {
  zlib::deflate_stream stream;
  stream.reset(kLevel, kWindowBits, kMemory, zlib::Strategy::normal);
  std::string body(stream.upper_bound(text.size()), '\0');
  zlib::z_params params;
  params.next_in = text.data();
  params.avail_in = text.size();
  params.next_out = body.data();
  params.avail_out = body.size();
  boost::system::error_code error;
  stream.write(params, zlib::Flush::finish, error);
  WEIR_CHECK(error == zlib::error::end_of_stream, "the bound of deflate holds");
  body.resize(params.total_out);

  boost::crc_32_type crc;
  crc.process_bytes(text.data(), text.size());
  std::string out(kHead);
  out += body;
  append_u32(out, crc.checksum());
  append_u32(out, static_cast<std::uint32_t>(text.size()));
  return out;
}

bool accepts_gzip(std::string_view accept_encoding) {
  std::optional<bool> named, any;
  while (!accept_encoding.empty()) {
    const auto comma = std::min(accept_encoding.find(','), accept_encoding.size());
    const std::string one = trimmed(accept_encoding.substr(0, comma));
    accept_encoding.remove_prefix(std::min(comma + 1, accept_encoding.size()));
    const auto semicolon = std::min(one.find(';'), one.size());
    const std::string name = one.substr(0, semicolon);
    const bool wanted = semicolon == one.size() || !is_zero(one.substr(semicolon + 1));
    if (name == "gzip" || name == "x-gzip") named = wanted;
    if (name == "*") any = wanted;
  }
  return named.value_or(any.value_or(false));
}

}  // namespace weir::http
