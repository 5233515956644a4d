// SPDX-License-Identifier: Apache-2.0
// An established data connection: socket options, frames of one generation, liveness, and the end
// of it. Outgoing and incoming links are built on it. Io thread only.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/ip/tcp.hpp>

#include "worker/transport/communicator.h"
#include "worker/transport/tcp/frame_reader.h"
#include "worker/transport/tcp/frame_writer.h"
#include "worker/transport/tcp/handshake.h"

namespace weir::transport::tcp {

// A connection after its handshake, and what it is for.
struct Joined {
  Port port;
  PeerAddress peer;
  boost::asio::ip::tcp::socket socket;
};

std::string name_of(const PeerAddress& peer);  // "stage 1 at 10.0.0.7:7071"

class Connection {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Hooks {
    std::function<Result<std::span<std::byte>>(const FrameHeader&)> begin;
    std::function<Status(const FrameHeader&, const BusyMeter::Message&)> complete;
    std::function<void()> batch_done;
    std::function<void()> drained;
    std::function<void(const std::string&)> failed;  // once; names the peer
  };

  Connection(Joined joined, GenerationId generation, std::chrono::nanoseconds dead_after,
             std::optional<Pacer> pacer);

  void start(std::weak_ptr<void> owner, Hooks hooks);
  FrameHeader header(FrameType type, std::uint64_t sequence, std::uint64_t length = 0) const;
  FrameWriter& writer() { return writer_; }
  const Port& port() const { return port_; }
  const PeerAddress& peer() const { return peer_; }
  bool peer_left() const { return peer_left_; }

  // Fails when the peer was silent for too long.
  void check_alive(Time now);
  // This process itself stood still: silence so far says nothing about the peer.
  void forgive_silence(Time now) { reader_.forgive_silence(now); }
  void fail(const std::string& reason);
  // Ends the connection; with goodbye, the peer does not take it for a failure.
  void close(bool goodbye);

 private:
  Result<std::span<std::byte>> begin(const FrameHeader& header);
  void lost(const Error& error);
  void write_failed(const std::string& reason);

  const Port port_;
  const PeerAddress peer_;
  const GenerationId generation_;
  const std::chrono::nanoseconds dead_after_;
  boost::asio::ip::tcp::socket socket_;
  FrameWriter writer_;
  FrameReader reader_;
  std::weak_ptr<void> owner_;
  Hooks hooks_;
  bool closed_ = false;
  bool peer_left_ = false;  // said goodbye
};

}  // namespace weir::transport::tcp
