// SPDX-License-Identifier: Apache-2.0
// The sending end of one (link, direction): starts a message only with a credit, holds it until the
// peer has acknowledged its last byte, and counts. With several connections each takes the next
// part of the oldest unfinished message when it has room; all but parts travels on the first one.
// Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "worker/transport/communicator.h"
#include "worker/transport/tcp/connection.h"
#include "worker/transport/tcp/connection_count.h"
#include "worker/transport/tcp/traffic_order.h"

namespace weir::transport::tcp {

class OutgoingLink : public std::enable_shared_from_this<OutgoingLink> {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Callbacks {
    std::function<void(std::uint64_t sequence, const Transfer& transfer)> sent;
    std::function<void(const std::string& reason)> failed;
  };

  // A link with a pacer has one connection.
  OutgoingLink(Joined joined, const LinkContext& link_context, const std::optional<Pacer>& pacer,
               bool automatic_connections);

  void start(Callbacks callbacks);
  enum class Sent : unsigned char {
    kWritten,
    kMuch,  // there is much to write: the io thread should flush()
    // The peer still has queued work. The message may wait briefly, so that several messages go out
    // in one write.
    kSoon,
  };
  Sent send(device::Buffer buffer, std::size_t bytes);
  void flush(FrameWriter::Patience patience);  // writes as much as the socket takes
  bool flush_small();                          // returns false if much remains to be written
  // On the engine thread: reads and writes as much as the socket of that connection allows. Returns
  // false if it has ended.
  bool serve(Connection& connection, bool readable, bool writable);
  void heartbeat(Time now, bool own_pause);
  void close(bool goodbye);
  const LinkEnd& end() const { return end_; }
  const PeerAddress& peer() const { return peer_; }
  const std::vector<std::unique_ptr<Connection>>& connections() const { return connections_; }
  LinkCounters counters() const;

 private:
  struct Message {
    device::Buffer buffer;
    std::size_t bytes = 0;
    Time started{};  // handed over and with a credit
  };
  struct Striped {
    std::uint64_t sequence = 0;
    Message message;
    std::size_t connections = 2;  // the first so many carry it
    std::uint32_t next_part = 0;
  };

  Connection& main() { return *connections_.front(); }
  bool idle() const;  // everything that was started is written
  std::size_t ready_bytes() const;
  void flush_all(FrameWriter::Patience patience);
  void draw(std::size_t index);
  void ping_spare();
  void spare_ponged();
  void count(const Arrival& arrival, Time now);
  void size_buffers();
  Result<std::span<std::byte>> begin(const Connection& connection, const FrameHeader& header);
  Status complete(const Connection& connection, const FrameHeader& header);
  Status credited(std::uint64_t granted);
  Status acknowledged(std::uint64_t sequence);
  void ponged(std::uint64_t sequence);
  void ping(bool measured);
  void take_inbox();
  void start_messages();
  void note_waiting();

  std::mutex inbox_mutex_;  // guards inbox_
  std::vector<Message> inbox_;

  const LinkEnd end_;
  const PeerAddress peer_;
  std::mutex mutex_;  // guards the fields below, up to counters_mutex_
  const std::vector<std::unique_ptr<Connection>> connections_;
  Callbacks callbacks_;
  std::deque<Message> queue_;      // not started
  std::deque<Message> in_flight_;  // started, not acknowledged
  std::deque<Striped> striped_;    // started, with parts that no connection has taken
  ConnectionCount connection_count_;
  BoundaryTraffic traffic_;
  std::optional<Time> spare_ping_;  // sent and not answered, on the last connection
  bool spare_beside_data_ = false;
  const int least_buffer_;
  int buffer_;                    // of each connection in use
  double first_round_trip_ = 0;   // by the kernel, of the handshake; 0 = unknown
  std::int64_t sized_bytes_ = 0;  // counted when buffers were looked at the last time
  std::chrono::nanoseconds sized_busy_{0};
  std::size_t bytes_in_flight_ = 0;
  std::uint64_t started_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::uint64_t granted_ = 0;
  std::array<std::byte, kAcknowledgementBytes> acknowledgement_{};

  std::uint64_t pings_ = 0;
  std::uint64_t ping_sequence_ = 0;  // of the ping that is measured; 0 = none
  Time ping_sent_{};
  int quick_pings_ = 0;  // number of initial pings that follow each other at once
  RoundTrips round_trips_;

  mutable std::mutex counters_mutex_;  // guards counters_ and waiting_since_
  LinkCounters counters_;
  std::optional<Time> waiting_since_;  // start of waiting for a credit
};

}  // namespace weir::transport::tcp
