// SPDX-License-Identifier: Apache-2.0
// One direction of a connection that moves state or a copy, as background in the order of the
// process's traffic (traffic_order.h). Io thread only.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <span>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "worker/transport/tcp/traffic_order.h"

namespace weir::transport::tcp {

// The shortest round trip to each peer. A connection that moves much sees its own bytes wait, so
// that only the beginnings of connections tell how long a path is.
class RoundTrips {
 public:
  // To the peer of a connection that has just begun; 0: unknown.
  std::chrono::nanoseconds of(boost::asio::ip::tcp::socket& socket);

 private:
  std::map<boost::asio::ip::address, std::chrono::nanoseconds> shortest_;
};

class StateStream : public std::enable_shared_from_this<StateStream> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Done = std::function<void(boost::system::error_code)>;

  // send_buffer_bytes: where the port is fast; 0: the kernel's own,
  // never changed. round_trip: of the path when nothing is on its way. Without an order nothing
  // waits.
  static std::shared_ptr<StateStream> make(Socket& socket, std::shared_ptr<TrafficOrder> order,
                                           TrafficDirection direction, int send_buffer_bytes,
                                           std::chrono::nanoseconds round_trip);

  // Moves all bytes, in slices. `done` is called once, or not at all after close(). One at a time;
  // what is written or read to is valid meanwhile. `done` owns the owner of the socket: it is kept
  // until no operation uses the socket, also after close(). `moved` is called after each slice.
  void write(std::span<const std::byte> bytes, Done done);
  void read(std::span<std::byte> bytes, std::function<void()> moved, Done done);
  void close();

 private:
  StateStream(Socket& socket, std::shared_ptr<TrafficOrder> order, TrafficDirection direction,
              int send_buffer_bytes, std::chrono::nanoseconds round_trip);
  void begin(std::span<std::byte> bytes, std::function<void()> moved, Done done);
  void go_on();
  void await_permission();
  void size();
  void finish(boost::system::error_code error);

  Socket& socket_;
  const std::shared_ptr<TrafficOrder> order_;
  const TrafficDirection direction_;
  const int send_buffer_bytes_;
  std::unique_ptr<BulkTraffic> traffic_;
  boost::asio::steady_timer timer_;
  std::span<std::byte> left_;  // only read from if the direction is kOut
  std::function<void()> moved_;
  Done done_;       // empty: nothing moves
  int buffer_ = 0;  // of the socket now; 0: the kernel's own
  const std::chrono::nanoseconds round_trip_;
};

}  // namespace weir::transport::tcp
