// SPDX-License-Identifier: Apache-2.0
#include "worker/wire/socket_options.h"

#include <array>
#include <cerrno>
#include <fstream>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

namespace weir::wire {
namespace {

constexpr int kEcnBits = 2;  // of the octet that holds the DSCP
constexpr auto kAllowed = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

void set(int descriptor, int level, int option, int value) {
  ::setsockopt(descriptor, level, option, &value, sizeof value);
}

bool set_congestion_control(int descriptor, const std::string& name) {
  return ::setsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                      static_cast<socklen_t>(name.size())) == 0;
}

std::string congestion_control_of(int descriptor) {
  std::array<char, 16> name{};  // TCP_CA_NAME_MAX
  socklen_t size = name.size() - 1;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0) return "";
  return name.data();
}

}  // namespace

void set_socket_options(int descriptor, const SocketOptions& options) {
  set(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  if (options.send_buffer_bytes > 0) {
    set(descriptor, SOL_SOCKET, SO_SNDBUF, options.send_buffer_bytes);
  }
  set(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(options.dead_after.count()));
  if (!options.congestion_control.empty()) {
    set_congestion_control(descriptor, options.congestion_control);
  }
  if (options.dscp) {
    // A socket of IPv6 also carries IPv4, by mapped addresses.
    set(descriptor, IPPROTO_IP, IP_TOS, *options.dscp << kEcnBits);
    set(descriptor, IPPROTO_IPV6, IPV6_TCLASS, *options.dscp << kEcnBits);
  }
}

Result<CongestionControl> try_congestion_control(const std::string& name) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) {
    return Error{Code::kUnavailable, std::generic_category().message(errno)};
  }
  CongestionControl result{.allowed = set_congestion_control(descriptor, name),
                           .in_use = congestion_control_of(descriptor),
                           .names = {}};
  ::close(descriptor);
  std::ifstream file(kAllowed);
  std::getline(file, result.names);
  return result;
}

}  // namespace weir::wire
