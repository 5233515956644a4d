// SPDX-License-Identifier: Apache-2.0
#include "worker/base/host_port.h"

#include <arpa/inet.h>
#include <array>
#include <charconv>

#include "worker/base/utf8.h"

namespace weir {
namespace {

constexpr int kHighestPort = 65535;

bool is_name(std::string_view text) {
  constexpr std::string_view kNever = "/\\@?#[]:,;\"'<>";
  for (const char c : text) {
    if (c <= ' ' || c == 0x7F || kNever.find(c) != kNever.npos) return false;
  }
  return !text.empty();
}

bool is_ipv6(std::string_view text) {  // a rough check, the resolver does the rest; % begins a zone
  constexpr std::string_view kParts = "0123456789abcdefABCDEF:.";
  const std::string_view address = text.substr(0, text.find('%'));
  return address.find(':') != address.npos && address.find_first_not_of(kParts) == address.npos;
}

}  // namespace

bool is_ip_address(const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> address{};
  const std::string without_zone = text.substr(0, text.find('%'));
  return inet_pton(AF_INET, text.c_str(), address.data()) == 1 ||
         inet_pton(AF_INET6, without_zone.c_str(), address.data()) == 1;
}

Result<int> parse_port(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port < 1 || port > kHighestPort) {
    return invalid("must be a port from 1 to 65535, found " + in_quotes(text));
  }
  return port;
}

Result<HostPort> parse_host_port(std::string_view text) {
  const auto bad = [text](const std::string& why) {
    return invalid("must be host:port, found " + in_quotes(text) + ": " + why);
  };
  if (text.find("://") != text.npos) return bad("it is a URL");
  std::string_view host = text, port;
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == text.npos) return bad("no ] after an IPv6 address");
    host = text.substr(1, end - 1);
    port = text.substr(end + 1);
    if (!is_ipv6(host)) return bad("no IPv6 address in the brackets");
    if (!port.starts_with(':')) return bad("no port");
  } else {
    const auto colon = text.rfind(':');
    if (colon == text.npos) return bad("no port");
    host = text.substr(0, colon);
    port = text.substr(colon);
    if (is_ipv6(host)) return bad("an IPv6 address needs brackets");
    if (host.empty()) return bad("no host");
    if (!is_name(host)) return bad("the host has characters that no name has");
  }
  auto number = parse_port(port.substr(1));
  if (!number) return bad(number.error().message);
  return HostPort{std::string(host), *number};
}

}  // namespace weir
