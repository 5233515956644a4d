// SPDX-License-Identifier: Apache-2.0
#include "worker/control/frame_socket.h"

#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

namespace weir::control {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// Four plans of the largest size. If more is queued, the peer does not read.
constexpr std::size_t kMaxQueuedBytes = 16 * 1024 * 1024;

std::array<unsigned char, 4> big_endian(std::size_t value) {
  return {static_cast<unsigned char>(value >> 24 & 0xFF),
          static_cast<unsigned char>(value >> 16 & 0xFF),
          static_cast<unsigned char>(value >> 8 & 0xFF), static_cast<unsigned char>(value & 0xFF)};
}

}  // namespace

void FrameSocket::start(std::size_t max_frame, Handlers handlers) {
  max_frame_ = max_frame;
  handlers_ = std::move(handlers);
  last_heard_ = std::chrono::steady_clock::now();
  read_length();
}

void FrameSocket::read_length() {
  asio::async_read(
      socket_, asio::buffer(length_),
      [self = shared_from_this()](const error_code& error, std::size_t) {
        if (self->closed_) return;
        if (error)
          return self->fail(error == asio::error::eof ? "closed by the peer" : error.message());
        self->last_heard_ = std::chrono::steady_clock::now();
        std::size_t size = 0;
        for (const unsigned char byte : self->length_) size = size << 8 | byte;
        if (size > self->max_frame_) {
          return self->fail("a frame of " + std::to_string(size) + " bytes, the limit is " +
                            std::to_string(self->max_frame_));
        }
        self->read_body(size);
      });
}

void FrameSocket::read_body(std::size_t size) {
  body_.resize(size);
  asio::async_read(socket_, asio::buffer(body_),
                   [self = shared_from_this()](const error_code& error, std::size_t) {
                     if (self->closed_) return;
                     if (error) return self->fail("closed in the middle of a frame");
                     self->last_heard_ = std::chrono::steady_clock::now();
                     if (!self->closing_) self->handlers_.on_frame(std::move(self->body_));
                     self->body_.clear();
                     if (!self->closed_) self->read_length();
                   });
}

void FrameSocket::send(std::string_view body) {
  if (closed_ || closing_) return;
  // Posted, because callers iterate over sessions.
  if (queued_bytes_ + body.size() > kMaxQueuedBytes) {
    asio::post(socket_.get_executor(),
               [self = shared_from_this()] { self->fail("the peer does not read"); });
    return;
  }
  const auto length = big_endian(body.size());
  std::string frame(length.begin(), length.end());
  frame += body;
  queued_bytes_ += frame.size();
  queue_.push_back(std::move(frame));
  if (queue_.size() == 1) write_next();
}

void FrameSocket::write_next() {
  asio::async_write(socket_, asio::buffer(queue_.front()),
                    [self = shared_from_this()](const error_code& error, std::size_t) {
                      if (self->closed_) return;
                      if (error) return self->fail(error.message());
                      self->queued_bytes_ -= self->queue_.front().size();
                      self->queue_.pop_front();
                      if (!self->queue_.empty()) return self->write_next();
                      self->flushed();
                      if (self->closing_) self->close();
                    });
}

void FrameSocket::when_flushed(std::function<void()> done) {
  flush_waiters_.push_back(std::move(done));
  if (closed_ || queue_.empty()) flushed();
}

void FrameSocket::flushed() {
  for (const auto& done : std::exchange(flush_waiters_, {})) done();
}

void FrameSocket::close_after_flush() {
  if (closed_) return;
  closing_ = true;
  handlers_.on_closed = nullptr;
  if (queue_.empty()) close();
}

void FrameSocket::close() {
  if (closed_) return;
  closed_ = true;
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
  flushed();
}

void FrameSocket::fail(const std::string& why) {
  if (closed_) return;
  const auto on_closed = std::exchange(handlers_.on_closed, nullptr);
  close();
  if (on_closed) on_closed(why);
}

}  // namespace weir::control
