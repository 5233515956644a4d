// SPDX-License-Identifier: Apache-2.0
// The sending end of one (link, direction): starts a message only with a credit, holds it until the
// peer has acknowledged its last byte, and counts. Any thread.
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

namespace weir::transport::tcp {

class OutgoingLink : public std::enable_shared_from_this<OutgoingLink> {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Callbacks {
    std::function<void(std::uint64_t sequence, const Transfer& transfer)> sent;
    std::function<void(const std::string& reason)> failed;
  };

  OutgoingLink(Joined joined, const LinkContext& link_context, std::optional<Pacer> pacer);

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
  // On the engine thread: reads and writes as much as the socket allows. Returns false if the
  // connection has ended.
  bool serve(bool readable, bool writable);
  void heartbeat(Time now, bool own_pause);
  Connection& connection() { return connection_; }
  LinkCounters counters() const;

 private:
  struct Message {
    device::Buffer buffer;
    std::size_t bytes = 0;
    Time started{};  // handed over and with a credit
  };

  Result<std::span<std::byte>> begin(const FrameHeader& header);
  Status complete(const FrameHeader& header);
  Status credited(std::uint64_t granted);
  Status acknowledged(std::uint64_t sequence);
  void ponged(std::uint64_t sequence);
  void ping(bool measured);
  void take_inbox();
  void start_messages();
  void note_waiting();

  std::mutex inbox_mutex_;  // guards inbox_
  std::vector<Message> inbox_;

  Connection connection_;  // its mutex guards the fields below, up to counters_mutex_
  Callbacks callbacks_;
  std::deque<Message> queue_;      // not started
  std::deque<Message> in_flight_;  // started, not acknowledged
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
