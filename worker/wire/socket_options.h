// SPDX-License-Identifier: Apache-2.0
// Options of a socket, equal at both ends.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "worker/base/result.h"

namespace weir::wire {

struct SocketOptions {
  int send_buffer_bytes = 0;  // SO_SNDBUF: with a larger one credits queue behind data; 0: any
  // TCP_USER_TIMEOUT: the peer is dead if data stays unacknowledged this long.
  std::chrono::milliseconds dead_after{0};
  std::string congestion_control;  // TCP_CONGESTION; "" = the kernel's default
  std::optional<int> dscp;         // 0 .. 63, in IP_TOS and IPV6_TCLASS; nothing: no mark
};

// Sets them, and TCP_NODELAY (a step takes 148 % longer without it). If the kernel refuses an
// option, it is left as it is; correctness does not depend on it.
void set_socket_options(int descriptor, const SocketOptions& options);

// The answer to a process on this machine that asks for a congestion control by name.
struct CongestionControl {
  bool allowed = false;       // it is taken
  std::string in_use, names;  // names: those that are allowed, with spaces between them
};
// kUnavailable: no socket can be made. Needs no right; loads nothing that the machine's owner does
// not allow.
Result<CongestionControl> try_congestion_control(const std::string& name);

}  // namespace weir::wire
