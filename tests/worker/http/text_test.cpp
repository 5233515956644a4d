// SPDX-License-Identifier: Apache-2.0
#include "worker/http/text.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "worker/http/line_splitter.h"
#include "worker/http/server.h"

namespace weir::http {
namespace text_test {

TEST(BaseUrl, SplitsHostPortAndPrefix) {
  const auto url = parse_base_url("https://weir-operator.weir-system.svc:8443/base/");

  ASSERT_TRUE(url.ok());
  EXPECT_TRUE(url->tls);
  EXPECT_EQ(url->host, "weir-operator.weir-system.svc");
  EXPECT_EQ(url->port, "8443");
  EXPECT_EQ(url->prefix, "/base");
}

TEST(BaseUrl, KnowsIpv6AndDefaultPorts) {
  const auto bracketed = parse_base_url("https://[fd00::7]:6443");
  ASSERT_TRUE(bracketed.ok());
  EXPECT_EQ(bracketed->host, "fd00::7");
  EXPECT_EQ(bracketed->port, "6443");
  EXPECT_EQ(bracketed->authority, "[fd00::7]:6443");

  const auto plain = parse_base_url("http://example.com");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->port, "80");
  EXPECT_EQ(plain->prefix, "");
}

TEST(BaseUrl, RefusesWhatIsNoBase) {
  for (const char* url : {"", "ftp://a", "http://", "http://a:70000", "http://a:x", "http://u@a",
                          "http://a/?q", "http://[::1", "http://[::1]x", "http://a b"}) {
    const auto parsed = parse_base_url(url);
    ASSERT_FALSE(parsed.ok()) << url;
    EXPECT_EQ(parsed.error().code, Code::kInvalid);
  }
}

TEST(BaseUrl, IsShownWithoutAPassword) {
  EXPECT_EQ(shown_url("http://a:9090/b"), "http://a:9090/b");
  EXPECT_EQ(shown_url("http://u:secret@a:9090/b"), "http://***@a:9090/b");
  EXPECT_EQ(shown_url("http://u:se/cr@et@a"), "http://***@a");
  EXPECT_EQ(shown_url("u:secret@a"), "***@a");
  for (const char* url :
       {"http://u:secret@a", "http://u:secret/x@a", "ftp://u:secret@a", "http://secret@a b"}) {
    const auto parsed = parse_base_url(url);
    ASSERT_FALSE(parsed.ok()) << url;
    EXPECT_EQ(parsed.error().message.find("secret"), std::string::npos) << parsed.error().message;
  }
}

TEST(BaseUrl, IsNeverShownWithItsSecrets) {
  EXPECT_EQ(shown_url("https://a:8443/base"), "https://a:8443/base");
  EXPECT_EQ(shown_url("http://u:s3cret@a:9090/x"), "http://***@a:9090/x");
  EXPECT_EQ(shown_url("http://u:s3/c@r?et@a"), "http://***@a");
  EXPECT_EQ(shown_url("u:s3cret@a:9090"), "***@a:9090");
  EXPECT_EQ(shown_url("http://a/?token=s3cret"), "http://a/?***");
  for (const char* url : {"http://u:s3cret@a", "u:s3cret@a", "http://a/?token=s3cret",
                          "ftp://u:s3cret@a b", "http://u:s3cret@a:x"}) {
    EXPECT_EQ(parse_base_url(url).error().message.find("s3cret"), std::string::npos) << url;
  }
}

TEST(RequestText, RefusesHeadersThatBreakTheMessage) {
  const BaseUrl base = *parse_base_url("http://a");

  EXPECT_FALSE(request_text(base, {Method::kGet, "/", {{"A", "b\r\nC: d"}}, ""}).ok());
  EXPECT_FALSE(request_text(base, {Method::kGet, "/", {{"A b", "c"}}, ""}).ok());
  EXPECT_FALSE(request_text(base, {Method::kGet, "/a b", {}, ""}).ok());
  EXPECT_FALSE(request_text(base, {Method::kGet, "a", {}, ""}).ok());
  EXPECT_TRUE(request_text(base, {Method::kGet, "/a?b=%20", {{"A", "b c"}}, ""}).ok());
}

TEST(Query, IsDecodedByName) {
  const std::string path = "/plan?have=7&wait=50&name=a%2Fb%20c&empty";

  EXPECT_EQ(path_of(path), "/plan");
  EXPECT_EQ(query_value(path, "have"), "7");
  EXPECT_EQ(query_value(path, "wait"), "50");
  EXPECT_EQ(query_value(path, "name"), "a/b c");
  EXPECT_EQ(query_value(path, "empty"), "");
  EXPECT_EQ(query_value(path, "ave"), "");
  EXPECT_EQ(query_value("/plan", "have"), "");
  EXPECT_EQ(query_value("/?x=%zz%4", "x"), "%zz%4");
}

TEST(Query, EncodesEverythingButUnreservedCharacters) {
  EXPECT_EQ(percent_encoded("az09-._~"), "az09-._~");
  EXPECT_EQ(percent_encoded("a/b c=\xC3\xA9"), "a%2Fb%20c%3D%C3%A9");
}

TEST(Headers, AreFoundWhateverTheirCase) {
  const Headers headers{{"Retry-After", "3"}, {"X", "1"}};

  EXPECT_EQ(header_value(headers, "retry-after"), "3");
  EXPECT_EQ(header_value(headers, "location"), "");
}

TEST(LineSplitter, CutsLinesWhateverTheChunksLookLike) {
  const std::string text = "one\n\nthree\nfo";
  for (std::size_t chunk = 1; chunk <= text.size(); ++chunk) {
    LineSplitter splitter(16);
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < text.size(); i += chunk) {
      ASSERT_TRUE(splitter.feed(std::string_view(text).substr(i, chunk),
                                [&](std::string_view line) { lines.emplace_back(line); }));
    }
    EXPECT_EQ(lines, (std::vector<std::string>{"one", "", "three"})) << chunk;
  }
}

TEST(LineSplitter, EndsAtALineAboveTheLimit) {
  LineSplitter splitter(4);
  const auto ignore = [](std::string_view) {};

  EXPECT_TRUE(splitter.feed("abcd\nab", ignore));
  EXPECT_TRUE(splitter.feed("cd", ignore));
  EXPECT_FALSE(splitter.feed("e", ignore));
}

}  // namespace text_test
}  // namespace weir::http
