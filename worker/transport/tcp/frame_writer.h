// SPDX-License-Identifier: Apache-2.0
// Writes frames to a socket without blocking and without copying payloads: header and payload go
// out in one gathered write, several small frames together. With a pacer, payloads are written in
// chunks at their due times. Call everything under the mutex of the connection.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "worker/device/device.h"
#include "worker/transport/tcp/data_socket.h"
#include "worker/transport/tcp/frame.h"
#include "worker/transport/tcp/pacer.h"

namespace weir::transport::tcp {

class FrameWriter {
 public:
  struct Callbacks {
    // Everything is written. It may push() more, which is written then, too.
    std::function<void()> drained;
    std::function<void()> blocked;                   // call unblocked() when the socket has room
    std::function<void(const std::string&)> failed;  // the connection is broken; final
  };

  FrameWriter(DataSocket& socket, boost::asio::io_context& context, std::mutex& mutex,
              std::optional<Pacer> pacer);

  void start(std::weak_ptr<void> owner, Callbacks callbacks);
  // Queues a frame; flush() writes it. `small` is copied; the buffer, of which `bytes` from `from`
  // on are the payload, is held until they are written.
  void push(const FrameHeader& header, std::span<const std::byte> small = {});
  void push(const FrameHeader& header, device::Buffer buffer, std::size_t from, std::size_t bytes);
  // Releases the mutex during the system call, so that no thread waits for it. One thread writes at
  // a time; others leave their frames to it.
  // kShort: waits for a moment for room in the socket; for the io thread.
  enum class Patience : unsigned char { kNone, kShort };
  void flush(Patience patience = Patience::kNone);
  void unblocked(Patience patience);
  bool empty() const { return entries_.empty(); }
  // Bytes that a flush() would try to write now.
  std::size_t ready_bytes() const { return waiting_ || writing_ ? 0 : pending_bytes_; }
  bool in_mid_frame() const { return writing_ || (!entries_.empty() && entries_.front().sent > 0); }
  void stop();  // drops queued frames

 private:
  struct Entry {
    std::array<std::byte, kFrameHeaderBytes + kAcknowledgementBytes> head{};
    std::size_t head_bytes = 0;
    device::Buffer buffer;
    std::size_t payload_from = 0, payload_bytes = 0;
    std::size_t sent = 0;
    bool paced = false;       // the pacer has been told of it
    std::size_t allowed = 0;  // bytes of the payload that the pacer allows
    std::size_t total() const { return head_bytes + payload_bytes; }
  };

  std::size_t gather(std::size_t most);
  void add_parts(Entry& entry, std::size_t limit);
  std::size_t paced_limit(Entry& entry);
  void consume(std::size_t bytes);
  Result<std::size_t> write_parts(std::size_t asked, Patience patience);
  void await_time(Pacer::Time time);

  DataSocket& socket_;
  std::mutex& mutex_;
  std::optional<Pacer> pacer_;
  Pacer::Chunk chunk_;
  boost::asio::steady_timer timer_;
  std::weak_ptr<void> owner_;
  Callbacks callbacks_;
  std::deque<Entry> entries_;
  std::vector<iovec> parts_;
  std::size_t pending_bytes_ = 0;
  bool writing_ = false;   // a thread is in a system call with parts_, without the mutex
  bool has_room_ = false;  // after the last write
  bool waiting_ = false;   // for room in the socket or for the pacer, which call flush() again
  bool stopped_ = false;
};

}  // namespace weir::transport::tcp
