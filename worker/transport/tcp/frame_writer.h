// SPDX-License-Identifier: Apache-2.0
// Writes frames to a socket without ever blocking and without copying payloads: header and payload
// go out in one gathered write, small frames several at a time. With a pacer, payloads go in chunks
// at their due times. Io thread only.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "worker/device/device.h"
#include "worker/transport/tcp/frame.h"
#include "worker/transport/tcp/pacer.h"

namespace weir::transport::tcp {

class FrameWriter {
 public:
  struct Hooks {
    std::function<void()> drained;                   // all is written
    std::function<void(const std::string&)> failed;  // the connection broke; final
  };

  FrameWriter(boost::asio::ip::tcp::socket& socket, std::optional<Pacer> pacer);

  void start(std::weak_ptr<void> owner, Hooks hooks);
  // Queues a frame; flush() writes. `small` is copied, `payload` is held until it is written.
  void push(const FrameHeader& header, std::span<const std::byte> small = {});
  void push(const FrameHeader& header, device::Buffer payload, std::size_t bytes);
  void flush();
  bool empty() const { return entries_.empty(); }
  bool in_mid_frame() const { return !entries_.empty() && entries_.front().sent > 0; }
  void stop();  // drops what is queued

 private:
  struct Entry {
    std::array<std::byte, kFrameHeaderBytes + kAcknowledgementBytes> head{};
    std::size_t head_bytes = 0;
    device::Buffer payload;
    std::size_t payload_bytes = 0;
    std::size_t sent = 0;
    bool paced = false;       // the pacer knows it
    std::size_t allowed = 0;  // of the payload, by the pacer
    std::size_t total() const { return head_bytes + payload_bytes; }
  };

  std::size_t gather();
  void add_buffers(const Entry& entry, std::size_t limit);
  std::size_t paced_limit(Entry& entry);
  void consume(std::size_t bytes);
  void await_writable();
  void await_time(Pacer::Time time);

  boost::asio::ip::tcp::socket& socket_;
  std::optional<Pacer> pacer_;
  Pacer::Chunk chunk_;
  boost::asio::steady_timer timer_;
  std::weak_ptr<void> owner_;
  Hooks hooks_;
  std::deque<Entry> entries_;
  std::vector<boost::asio::const_buffer> buffers_;
  bool waiting_ = false;  // for room in the socket
  bool stopped_ = false;
};

}  // namespace weir::transport::tcp
