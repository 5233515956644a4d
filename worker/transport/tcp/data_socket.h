// SPDX-License-Identifier: Apache-2.0
// A connected socket after its handshake, with non-blocking reads and writes. It is no Asio socket,
// because Asio's reactor wakes its thread for every packet, even if nothing waits for it; see
// socket_watch.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <sys/uio.h>

#include "worker/base/result.h"

namespace weir::transport::tcp {

// Bytes that a socket may hold in the kernel. More than the machine allows: as many as the kernel
// itself chooses, of which few wait unsent.
void set_send_buffer(int descriptor, int bytes);
// Bytes that may wait there until they are read. 0: as many as the kernel itself chooses.
void set_receive_buffer(int descriptor, int bytes);
int segment_of(int descriptor);  // bytes of payload in the largest packet; 0 = unknown
// The shortest of the last minutes, by the kernel; nothing where it does not tell.
std::optional<std::chrono::nanoseconds> round_trip_of(int descriptor);
// That of now, with the queue in which what the socket sends waits; 0 = unknown.
std::chrono::nanoseconds present_round_trip_of(int descriptor);
// Since the peer's kernel has last answered, be its process stopped or not; 0 = unknown.
std::chrono::nanoseconds unanswered_for(int descriptor);

class DataSocket {
 public:
  explicit DataSocket(int descriptor) : descriptor_(descriptor) {}
  ~DataSocket();
  DataSocket(const DataSocket&) = delete;
  DataSocket& operator=(const DataSocket&) = delete;

  int descriptor() const { return descriptor_; }
  // Reads into `to` and, when that is full, into `more`. Returns the number of bytes; 0 = nothing
  // is there. `to` is not empty. kUnavailable: closed by the peer, or broken.
  Result<std::size_t> read(std::span<std::byte> to, std::span<std::byte> more = {});
  // Returns the number of written bytes; 0 = no room. kUnavailable: broken.
  Result<std::size_t> write(std::span<iovec> parts);
  // Waits for room. Returns false if there is none within that time.
  bool await_room(std::chrono::microseconds limit) const;
  std::size_t unread() const;  // bytes that have arrived
  // Ends both directions; data that has been written is still sent. The descriptor stays open until
  // this object is destroyed, because another thread may be about to use it.
  void shut();

 private:
  int descriptor_;
};

}  // namespace weir::transport::tcp
