// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/tcp/state_stream.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "worker/base/units.h"
#include "worker/transport/tcp/data_socket.h"

namespace weir::transport::tcp {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;
using Clock = std::chrono::steady_clock;

// The most that moves without asking again: few calls on a fast port, and a few seconds at the
// least rate of bulk, so that a peer that is slow does not look like one that is silent.
constexpr std::size_t kMostSlice = std::size_t{256} << 10U;
constexpr int kSameSize = 4;  // a fourth more or less is not worth a change

}  // namespace

std::chrono::nanoseconds RoundTrips::of(boost::asio::ip::tcp::socket& socket) {
  ErrorCode error;
  const auto peer = socket.remote_endpoint(error).address();
  const auto seen = error ? std::nullopt : round_trip_of(socket.native_handle());
  if (!seen) return std::chrono::nanoseconds{0};
  auto& shortest = shortest_.try_emplace(peer, *seen).first->second;
  shortest = std::min(shortest, *seen);
  return shortest;
}

std::shared_ptr<StateStream> StateStream::make(Socket& socket, std::shared_ptr<TrafficOrder> order,
                                               TrafficDirection direction, int send_buffer_bytes,
                                               std::chrono::nanoseconds round_trip) {
  std::shared_ptr<StateStream> made(
      new StateStream(socket, std::move(order), direction, send_buffer_bytes, round_trip));
  // Other threads call it, so it may not touch the timer.
  made->traffic_ = std::make_unique<BulkTraffic>(
      made->order_, direction, [weak = made->weak_from_this(), executor = socket.get_executor()] {
        asio::post(executor, [weak] {
          if (const auto self = weak.lock()) self->timer_.cancel();
        });
      });
  return made;
}

StateStream::StateStream(Socket& socket, std::shared_ptr<TrafficOrder> order,
                         TrafficDirection direction, int send_buffer_bytes,
                         std::chrono::nanoseconds round_trip)
    : socket_(socket),
      order_(std::move(order)),
      direction_(direction),
      send_buffer_bytes_(send_buffer_bytes),
      timer_(socket.get_executor()),
      round_trip_(round_trip) {}

void StateStream::write(std::span<const std::byte> bytes, Done done) {
  begin({const_cast<std::byte*>(bytes.data()), bytes.size()}, [] {}, std::move(done));
}

void StateStream::read(std::span<std::byte> bytes, std::function<void()> moved, Done done) {
  begin(bytes, std::move(moved), std::move(done));
}

void StateStream::begin(std::span<std::byte> bytes, std::function<void()> moved, Done done) {
  left_ = bytes;
  moved_ = std::move(moved);
  done_ = std::move(done);
  go_on();
}

void StateStream::close() {
  traffic_->stop();
  timer_.cancel();
  moved_ = nullptr;
  done_ = nullptr;
}

void StateStream::finish(ErrorCode error) {
  traffic_->idle(Clock::now());
  moved_ = nullptr;
  std::exchange(done_, nullptr)(error);
}

void StateStream::go_on() {
  if (left_.empty()) return finish({});
  const std::size_t may = traffic_->allowance(TrafficClass::kBackground, Clock::now());
  if (may == 0) return await_permission();
  size();
  const std::size_t unasked = buffer_ > 0 ? static_cast<std::size_t>(buffer_) : kMostSlice;
  const auto slice = left_.first(std::min({may, left_.size(), unasked, kMostSlice}));
  left_ = left_.subspan(slice.size());
  // Holds `done` and with it the owner of the socket, which the operation uses until its end.
  auto next = [keep = shared_from_this(), owner = done_, bytes = slice.size()](ErrorCode error,
                                                                               std::size_t) {
    if (!keep->done_) return;
    if (error) return keep->finish(error);
    keep->traffic_->moved(bytes, Clock::now());
    keep->moved_();
    if (keep->done_) keep->go_on();
  };
  if (direction_ == TrafficDirection::kOut) {
    asio::async_write(socket_, asio::const_buffer(slice.data(), slice.size()), std::move(next));
  } else {
    asio::async_read(socket_, asio::buffer(slice.data(), slice.size()), std::move(next));
  }
}

// A wake cancels the timer.
void StateStream::await_permission() {
  timer_.expires_at(traffic_->again());
  timer_.async_wait([keep = shared_from_this()](ErrorCode) {
    if (keep->done_) keep->go_on();
  });
}

// Limits what may wait in the kernel, where it would be ahead of a tensor.
void StateStream::size() {
  if (!order_ || send_buffer_bytes_ <= 0 || !order_->has_links()) return;
  const int descriptor = socket_.native_handle();
  auto round_trip = round_trip_;
  if (direction_ == TrafficDirection::kOut) {  // what it sends comes upon an empty port at times
    round_trip = std::min(round_trip, round_trip_of(descriptor).value_or(round_trip));
  }
  const int wanted = std::min(bulk_buffer_bytes(order_->best_rate(direction_, Clock::now()),
                                                to_seconds(round_trip), segment_of(descriptor), 1),
                              send_buffer_bytes_);
  if (wanted <= 0 || std::abs(wanted - buffer_) <= buffer_ / kSameSize) return;
  buffer_ = wanted;
  if (direction_ == TrafficDirection::kOut) {
    set_send_buffer(descriptor, wanted);
  } else {
    set_receive_buffer(descriptor, wanted < send_buffer_bytes_ ? wanted : 0);
  }
}

}  // namespace weir::transport::tcp
