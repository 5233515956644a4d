// SPDX-License-Identifier: Apache-2.0
// Addresses: which ones peers can reach this worker by, and the host part of a URL.
#pragma once

#include <string>
#include <vector>

#include "worker/base/result.h"

namespace weir::app {

bool is_loopback(const std::string& ip);
// "https://weir.weir-system.svc:8443/x" -> "weir.weir-system.svc"; "[::1]" without brackets.
std::string host_of(const std::string& url);

// Addresses of `interface` if one is given (kInvalid: it has none), else those of pod_ips (comma
// separated), else the address that the ports listen on, else the loopback.
Result<std::vector<std::string>> own_addresses(const std::string& interface,
                                               const std::string& pod_ips,
                                               const std::string& listen);

}  // namespace weir::app
