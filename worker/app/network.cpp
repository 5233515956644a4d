// SPDX-License-Identifier: Apache-2.0
#include "worker/app/network.h"

#include <array>
#include <ifaddrs.h>
#include <memory>
#include <netdb.h>
#include <sstream>
#include <sys/socket.h>

namespace weir::app {
namespace {

std::vector<std::string> addresses_of(const std::string& interface) {
  std::vector<std::string> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || interface != one->ifa_name) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const auto size =
        static_cast<socklen_t>(family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    std::array<char, NI_MAXHOST> text{};
    const int failed =
        getnameinfo(one->ifa_addr, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
    const std::string address = text.data();
    const bool link_local = address.starts_with("fe80:");  // needs a scope, which peers do not have
    if (failed == 0 && !link_local) found.push_back(address);
  }
  return found;
}

}  // namespace

bool is_loopback(const std::string& ip) {
  return ip.starts_with("127.") || ip == "::1" || ip.starts_with("::ffff:127.");
}

std::string host_of(const std::string& url) {
  const std::size_t scheme = url.find("://");
  std::string rest = scheme == std::string::npos ? url : url.substr(scheme + 3);
  rest = rest.substr(0, rest.find('/'));
  if (rest.starts_with('[')) return rest.substr(1, rest.find(']') - 1);
  return rest.substr(0, rest.find(':'));
}

Result<std::vector<std::string>> own_addresses(const std::string& interface,
                                               const std::string& pod_ips,
                                               const std::string& listen) {
  if (!interface.empty()) {
    std::vector<std::string> found = addresses_of(interface);
    if (found.empty()) return invalid("WEIR_INTERFACE: " + interface + " has no address here");
    return found;
  }
  std::vector<std::string> list;
  std::istringstream parts(pod_ips);
  for (std::string one; std::getline(parts, one, ',');) {
    if (!one.empty()) list.push_back(one);
  }
  const bool any = listen.empty() || listen == "0.0.0.0" || listen == "::";
  if (list.empty()) list.push_back(any ? "127.0.0.1" : listen);
  return list;
}

}  // namespace weir::app
