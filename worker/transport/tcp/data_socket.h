// SPDX-License-Identifier: Apache-2.0
// A connected socket after its handshake: reads and writes that never block. Not an Asio socket,
// because Asio's reactor wakes its thread for every packet, also when nobody asked; see
// socket_watch.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <sys/uio.h>

#include "worker/base/result.h"

namespace weir::transport::tcp {

class DataSocket {
 public:
  explicit DataSocket(int descriptor) : descriptor_(descriptor) {}
  ~DataSocket();
  DataSocket(const DataSocket&) = delete;
  DataSocket& operator=(const DataSocket&) = delete;

  int descriptor() const { return descriptor_; }
  // Bytes read into `to` and, when that is full, `more`; 0 = nothing there now. `to` is not empty.
  // kUnavailable: closed by the peer, or broken.
  Result<std::size_t> read(std::span<std::byte> to, std::span<std::byte> more = {});
  // Bytes written; 0 = no room now. kUnavailable: broken.
  Result<std::size_t> write(std::span<iovec> parts);
  // Waits for room; false: there is none within that time.
  bool await_room(std::chrono::microseconds limit) const;
  // Nothing more comes or goes, what is written already is sent. The descriptor stays taken until
  // the end of this object, as another thread may be about to use it.
  void shut();

 private:
  int descriptor_;
};

}  // namespace weir::transport::tcp
