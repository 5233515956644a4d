// SPDX-License-Identifier: Apache-2.0
// TCP connections of a process end as if the network had reset or lost them. Linux 5.6, and the
// right to trace the process.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <netinet/in.h>
#include <set>
#include <string>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <linux/filter.h>

namespace weir::test {

// Own descriptors of the connections of that process of which an end has one of these ports.
class ConnectionsOf {
 public:
  ConnectionsOf(pid_t process, const std::set<int>& ports) {
    const int handle = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
    if (handle < 0) return;
    const std::string folder = "/proc/" + std::to_string(process) + "/fd";
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator(folder, gone)) {
      const std::string name = entry.path().filename();
      int theirs = -1;
      std::from_chars(name.data(), name.data() + name.size(), theirs);
      const int own = static_cast<int>(syscall(SYS_pidfd_getfd, handle, theirs, 0));
      if (own < 0) continue;
      const int here = port_of(own, getsockname), there = port_of(own, getpeername);
      if (there != 0 && (ports.contains(here) || ports.contains(there))) {
        all_.push_back(own);
      } else {
        close(own);
      }
    }
    close(handle);
  }
  ~ConnectionsOf() {
    for (const int fd : all_) close(fd);
  }
  ConnectionsOf(const ConnectionsOf&) = delete;
  ConnectionsOf& operator=(const ConnectionsOf&) = delete;

  const std::vector<int>& all() const { return all_; }

 private:
  // A port of one end of a socket; 0: it has none.
  static int port_of(int fd, int (*end)(int, sockaddr*, socklen_t*)) {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    const bool known = end(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    return known && address.sin_family == AF_INET ? ntohs(address.sin_port) : 0;
  }

  std::vector<int> all_;
};

// Resets one of these connections; `pick` chooses among them, modulo their number. Both ends see a
// reset. False: there is none, or this system does not allow it.
inline bool reset_connection(pid_t process, const std::set<int>& ports, std::uint64_t pick) {
  const ConnectionsOf connections(process, ports);
  if (connections.all().empty()) return false;
  // A connected socket that is told to connect to nowhere sends a reset.
  const sockaddr nowhere{};
  const int fd = connections.all()[pick % connections.all().size()];
  return connect(fd, &nowhere, sizeof nowhere) == 0;
}

// Drops all packets that arrive on these connections, before the kernel could acknowledge one. New
// connections work. False as above.
inline bool cut_connections(pid_t process, const std::set<int>& ports) {
  const ConnectionsOf connections(process, ports);
  std::array<sock_filter, 1> drop{{{.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = 0}}};
  const sock_fprog program{.len = drop.size(), .filter = drop.data()};
  for (const int fd : connections.all()) {
    if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0) return false;
  }
  return !connections.all().empty();
}

}  // namespace weir::test
