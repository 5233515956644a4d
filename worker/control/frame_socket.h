// SPDX-License-Identifier: Apache-2.0
// Frames over one TCP socket. Internal to this room, because it needs Boost.Asio: only link.cpp and
// agent.cpp include it. All calls and all handlers run on one io thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/ip/tcp.hpp>

namespace weir::control {

class FrameSocket : public std::enable_shared_from_this<FrameSocket> {
 public:
  struct Handlers {
    std::function<void(std::string body)> on_frame;
    // Called once for end of stream, an error or a frame above the limit, but not after close().
    std::function<void(const std::string& why)> on_closed;
  };

  explicit FrameSocket(boost::asio::ip::tcp::socket socket) : socket_(std::move(socket)) {}

  // Starts to read. A frame above max_frame closes the socket.
  void start(std::size_t max_frame, Handlers handlers);
  // Queues the frame; closes if the peer has not read for too long.
  void send(std::string_view body);
  void close();  // closes at once: queued frames are lost, and no handler runs afterwards
  void close_after_flush();  // sends the queued frames first, but reads nothing more
  void when_flushed(std::function<void()> done);  // also called when the socket closes

  std::chrono::steady_clock::time_point last_heard() const { return last_heard_; }

 private:
  void read_length();
  void read_body(std::size_t size);
  void write_next();
  void fail(const std::string& why);
  void flushed();

  boost::asio::ip::tcp::socket socket_;
  Handlers handlers_;
  std::size_t max_frame_ = 0;
  std::array<unsigned char, 4> length_{};
  std::string body_;
  std::deque<std::string> queue_;  // the front is being written
  std::size_t queued_bytes_ = 0;
  std::deque<std::function<void()>> flush_waiters_;
  std::chrono::steady_clock::time_point last_heard_ = std::chrono::steady_clock::now();
  bool closed_ = false, closing_ = false;
};

}  // namespace weir::control
