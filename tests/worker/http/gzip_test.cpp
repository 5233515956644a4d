// SPDX-License-Identifier: Apache-2.0
#include "worker/http/gzip.h"

#include <cstdint>
#include <string>

#include <boost/beast/zlib/inflate_stream.hpp>
#include <boost/crc.hpp>
#include <gtest/gtest.h>

namespace weir::http {
namespace gzip_test {

std::uint32_t u32(const std::string& text, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(text[at + i]);
  return value;
}

// As a reader of RFC 1952 does; "" when it is none.
std::string unpacked(const std::string& packed, std::size_t size) {
  constexpr std::size_t kHead = 10, kTail = 8;
  if (packed.size() < kHead + kTail || packed.substr(0, 3) != "\x1f\x8b\x08") return "";
  boost::beast::zlib::inflate_stream stream;
  std::string out(size + 1, '\0');
  boost::beast::zlib::z_params params;
  params.next_in = packed.data() + kHead;
  params.avail_in = packed.size() - kHead - kTail;
  params.next_out = out.data();
  params.avail_out = out.size();
  boost::system::error_code error;
  stream.write(params, boost::beast::zlib::Flush::finish, error);
  out.resize(params.total_out);
  boost::crc_32_type crc;
  crc.process_bytes(out.data(), out.size());
  const std::size_t tail = packed.size() - kTail;
  return u32(packed, tail) == crc.checksum() && u32(packed, tail + 4) == out.size() ? out : "";
}

TEST(Gzip, CanBeUnpacked) {
  std::string page;
  for (int i = 0; page.size() < 300'000; ++i) {
    page += "weir_link_bytes_total{link=\"" + std::to_string(i) + "\"} " +
            std::to_string(i * 7919) + "\n";
  }
  for (const std::string& text : {std::string("a"), std::string(1, '\0') + "b", page}) {
    EXPECT_EQ(unpacked(gzip(text), text.size()), text);
  }
  EXPECT_LT(gzip(page).size() * 4, page.size());
}

TEST(Gzip, IsTakenOnlyByThoseWhoSaySo) {
  for (const char* yes :
       {"gzip", "GZIP", "deflate, gzip;q=0.5", "br, *", "x-gzip", " gzip ;q=1.0"}) {
    EXPECT_TRUE(accepts_gzip(yes)) << yes;
  }
  for (const char* no :
       {"", "identity", "gzip;q=0", "gzip; q=0.000, *", "*;q=0", "gzippy", ",,;"}) {
    EXPECT_FALSE(accepts_gzip(no)) << no;
  }
}

}  // namespace gzip_test
}  // namespace weir::http
