// SPDX-License-Identifier: Apache-2.0
// Addresses in options and URLs. Pure.
#pragma once

#include <string>
#include <string_view>

#include "worker/base/result.h"

namespace weir {

struct HostPort {
  std::string host;  // a name or an IP address, without brackets
  int port = 0;      // 1..65535
};

// Reads "worker-0.gpt:7070", "10.0.0.1:7070" or "[fd00::1]:7070". The error is kInvalid and names
// the text and what is wrong with it.
Result<HostPort> parse_host_port(std::string_view text);
// True for an IPv4 or IPv6 address, false for a name.
bool is_ip_address(const std::string& text);
// Reads a decimal number, 1..65535.
Result<int> parse_port(std::string_view text);

}  // namespace weir
