// SPDX-License-Identifier: Apache-2.0
#include "worker/base/host_port.h"

#include <string>

#include <gtest/gtest.h>

namespace weir {
namespace host_port_test {

TEST(HostPort, TakesNamesAndBothFamilies) {
  const auto text = [](const char* address) {
    const auto parsed = parse_host_port(address);
    return parsed ? parsed->host + " " + std::to_string(parsed->port) : parsed.error().message;
  };
  EXPECT_EQ(text("gpt-gpu-0.gpt:7070"), "gpt-gpu-0.gpt 7070");
  EXPECT_EQ(text("10.0.0.1:1"), "10.0.0.1 1");
  EXPECT_EQ(text("[fd00::1]:65535"), "fd00::1 65535");
  EXPECT_EQ(text("[fe80::1%eth0]:7070"), "fe80::1%eth0 7070");
}

TEST(HostPort, NamesWhatIsNoAddress) {
  for (const char* address : {"",
                              "localhost",
                              "localhost:",
                              ":7070",
                              "localhost:99999",
                              "localhost:0",
                              "localhost:-1",
                              "localhost:port",
                              "localhost:7070x",
                              "[::1:7070",
                              "[::1]",
                              "[::1]7070",
                              "[]:7070",
                              "[name]:7070",
                              "::1:7070",
                              "http://localhost:7070",
                              "a b:7070",
                              "user@host:7070",
                              "a/b:1",
                              "a,b:7070"}) {
    const auto parsed = parse_host_port(address);
    ASSERT_FALSE(parsed.ok()) << address;
    EXPECT_EQ(parsed.error().code, Code::kInvalid);
    EXPECT_EQ(
        parsed.error().message.find("must be host:port, found '" + std::string(address) + "'"), 0U)
        << parsed.error().message;
  }
}

}  // namespace host_port_test
}  // namespace weir
