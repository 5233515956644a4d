// SPDX-License-Identifier: Apache-2.0
// Addresses under which peers can reach this worker, and the host part of a URL.
#pragma once

#include <string>
#include <vector>

#include "worker/base/result.h"

namespace weir::app {

bool is_loopback(const std::string& ip);
// "https://weir.weir-system.svc:8443/x" -> "weir.weir-system.svc"; "[::1]" loses its brackets.
std::string host_of(const std::string& url);

// Addresses of `interface` if it is given (kInvalid: it has none), else those of pod_ips
// (comma-separated), else the address on which the ports listen, else the loopback.
Result<std::vector<std::string>> own_addresses(const std::string& interface,
                                               const std::string& pod_ips,
                                               const std::string& listen);

}  // namespace weir::app
