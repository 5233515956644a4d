// SPDX-License-Identifier: Apache-2.0
// An address as options and URLs name it. Pure.
#pragma once

#include <string>
#include <string_view>

#include "worker/base/result.h"

namespace weir {

struct HostPort {
  std::string host;  // a name or an IP, without brackets
  int port = 0;      // 1..65535
};

// "worker-0.gpt:7070", "10.0.0.1:7070", "[fd00::1]:7070". kInvalid: the text and what is wrong.
Result<HostPort> parse_host_port(std::string_view text);
// An IPv4 or IPv6 address, no name.
bool is_ip_address(const std::string& text);
// Decimal, 1..65535.
Result<int> parse_port(std::string_view text);

}  // namespace weir
