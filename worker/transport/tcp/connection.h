// SPDX-License-Identifier: Apache-2.0
// An established data connection: frames of one generation, who reads the socket, liveness, and the
// end of it. Outgoing and incoming links are built on it. What is not said to be for any thread
// needs its mutex; hooks run under it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "worker/transport/communicator.h"
#include "worker/transport/tcp/frame_reader.h"
#include "worker/transport/tcp/frame_writer.h"
#include "worker/transport/tcp/handshake.h"
#include "worker/transport/tcp/socket_watch.h"

namespace weir::transport::tcp {

// A connection after its handshake, and what it is for.
struct Joined {
  Port port;
  PeerAddress peer;
  boost::asio::ip::tcp::socket socket;
};

// What all connections of a communicator share.
struct Surroundings {
  GenerationId generation;
  std::chrono::nanoseconds dead_after{0};
  boost::asio::io_context& context;
  SocketWatch& watch;
  // While it is true, the engine thread waits for the sockets and the io thread leaves them to it.
  const std::atomic<bool>& engine_drives;
  std::function<void()> wake_engine;  // if it waits: the sockets that it should wait for changed
};

class Connection {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Hooks {
    std::function<Result<std::span<std::byte>>(const FrameHeader&)> begin;
    std::function<Status(const FrameHeader&, const BusyMeter::Message&)> complete;
    std::function<void()> read;  // all that was there, by the io thread
    std::function<void()> drained;
    std::function<void(const std::string&)> failed;  // once; names the peer
  };

  Connection(Joined joined, const Surroundings& around, std::optional<Pacer> pacer);

  // Any thread.
  const Port& port() const { return port_; }
  const PeerAddress& peer() const { return peer_; }
  int descriptor() const { return descriptor_; }
  std::mutex& mutex() { return mutex_; }
  bool blocked() const { return blocked_; }      // there is something to write, but no room
  bool peer_left() const { return peer_left_; }  // it has said goodbye
  void arm();                                    // the io thread takes over
  // Ends the connection; with goodbye, the peer does not take it for a failure.
  void end(bool goodbye);

  void start(std::weak_ptr<void> owner, Hooks hooks);
  void pump() { reader_.pump(); }  // reads what is there
  void unblocked();                // by the engine thread: there is room
  FrameHeader header(FrameType type, std::uint64_t sequence, std::uint64_t length = 0) const;
  FrameWriter& writer() { return writer_; }
  bool ended() const { return closed_ || lost_; }

  // Fails when the peer was silent for too long.
  void check_alive(Time now);
  // This process itself stood still: silence so far says nothing about the peer.
  void forgive_silence(Time now) { reader_.forgive_silence(now); }
  void fail(const std::string& reason);

 private:
  void ready(bool readable, bool writable);
  void ask();
  void block();
  Result<std::span<std::byte>> begin(const FrameHeader& header);
  void lost(const Error& error);
  void write_failed(const std::string& reason);
  void close(bool goodbye);

  const Port port_;
  const PeerAddress peer_;
  const Surroundings around_;
  std::mutex mutex_;  // guards all below
  DataSocket socket_;
  const int descriptor_;
  FrameWriter writer_;
  FrameReader reader_;
  std::weak_ptr<void> owner_;
  Hooks hooks_;
  std::uint64_t watch_id_ = 0;
  bool asked_readable_ = false;  // of the watch, since it last told
  bool asked_writable_ = false;
  std::atomic<bool> blocked_ = false;
  bool closed_ = false;
  std::atomic<bool> peer_left_ = false;
  bool lost_ = false;  // and closed
};

}  // namespace weir::transport::tcp
