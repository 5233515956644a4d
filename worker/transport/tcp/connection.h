// SPDX-License-Identifier: Apache-2.0
// An established data connection: frames of one generation, the choice of the thread that reads the
// socket, liveness, and the end of the connection. Outgoing and incoming links have one or several
// of them, which share the mutex of the link. Functions that are not marked for any thread need it;
// callbacks run under it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "worker/transport/communicator.h"
#include "worker/transport/tcp/frame_reader.h"
#include "worker/transport/tcp/frame_writer.h"
#include "worker/transport/tcp/place.h"
#include "worker/transport/tcp/socket_watch.h"
#include "worker/transport/tcp/traffic_order.h"

namespace weir::transport::tcp {

// A link end with its connections after their handshakes, at least one.
struct Joined {
  LinkEnd end;
  PeerAddress peer;
  std::vector<boost::asio::ip::tcp::socket> sockets;
};

// Shared by all connections of a communicator.
struct LinkContext {
  GenerationId generation;
  std::chrono::nanoseconds dead_after{0};
  int send_buffer_bytes = 0;            // of a link on a short path; 0: the kernel's own
  std::shared_ptr<TrafficOrder> order;  // may be null
  boost::asio::io_context& context;
  SocketWatch& watch;
  // While it is true, the engine thread waits for the sockets, and the io thread leaves them alone.
  const std::atomic<bool>& engine_drives;
  std::function<void()> wake_engine;  // call this if the sockets to wait for have changed
};

class Connection {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Callbacks {
    std::function<Result<std::span<std::byte>>(const FrameHeader&)> begin;
    std::function<Status(const FrameHeader&, const BusyMeter::Message&)> complete;
    std::function<void()> read;  // everything that was there has been read, on the io thread
    std::function<void()> drained;
    std::function<void(const std::string&)> failed;  // called once; names the peer
  };

  // name: of this connection in errors, e.g. "stage 1 at 10.0.0.7:7071, link 0-1 forward".
  Connection(std::mutex& mutex, const LinkEnd& link_end, std::string name,
             boost::asio::ip::tcp::socket socket, const LinkContext& link_context,
             std::optional<Pacer> pacer);

  // Any thread.
  int descriptor() const { return descriptor_; }
  bool blocked() const { return blocked_; }      // there is data to write, but no room
  bool peer_left() const { return peer_left_; }  // it has sent a goodbye
  const GenerationId& generation() const { return link_context_.generation; }
  void arm();  // the io thread takes over
  // Ends the connection. With a goodbye, the peer does not treat the end as a failure.
  void end(bool goodbye);

  void start(std::weak_ptr<void> owner, Callbacks callbacks);
  void pump() { reader_.pump(); }  // reads everything that is there
  void unblocked();                // on the engine thread: the socket has room
  FrameHeader header(FrameType type, std::uint64_t sequence, std::uint64_t length = 0) const;
  FrameWriter& writer() { return writer_; }
  bool ended() const { return closed_ || lost_; }
  DataSocket& socket() { return socket_; }

  // Fails the connection if the peer has been silent for too long.
  void check_alive(Time now);
  // This process itself was stopped, so the silence so far tells nothing about the peer.
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

  const LinkEnd link_end_;
  const std::string name_;
  const LinkContext link_context_;
  std::mutex& mutex_;  // of the link; guards the fields below
  DataSocket socket_;
  const int descriptor_;
  FrameWriter writer_;
  FrameReader reader_;
  std::weak_ptr<void> owner_;
  Callbacks callbacks_;
  std::uint64_t watch_id_ = 0;
  bool asked_readable_ = false;  // requested from the watch since its last event
  bool asked_writable_ = false;
  std::atomic<bool> blocked_ = false;
  bool closed_ = false;
  std::atomic<bool> peer_left_ = false;
  bool lost_ = false;  // the connection has failed and is closed
};

// The connections of a link end; the first one paced by `pacer`.
std::vector<std::unique_ptr<Connection>> make_connections(std::mutex& mutex, Joined joined,
                                                          const LinkContext& link_context,
                                                          const std::optional<Pacer>& pacer);

}  // namespace weir::transport::tcp
