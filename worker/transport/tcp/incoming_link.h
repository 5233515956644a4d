// SPDX-License-Identifier: Apache-2.0
// The receiving end of one (link, direction): grants one credit per posted receive, reads into its
// buffer, times the arrival and acknowledges it. With several connections parts of messages come on
// all of them, and messages are complete in their order. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "worker/transport/communicator.h"
#include "worker/transport/tcp/connection.h"
#include "worker/transport/tcp/traffic_order.h"

namespace weir::transport::tcp {

class IncomingLink : public std::enable_shared_from_this<IncomingLink> {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Callbacks {
    std::function<void(std::uint64_t sequence, const Transfer& transfer)> received;
    std::function<void(const std::string& reason)> failed;
  };

  IncomingLink(Joined joined, const LinkContext& link_context);

  void start(Callbacks callbacks);
  void receive(device::Buffer buffer, std::size_t bytes);  // the next flush() grants the credit
  void flush();                                            // writes acknowledgements and credits
  // On the engine thread: reads and writes as much as the socket of that connection allows; answers
  // wait for a flush(). Returns false if it has ended.
  bool serve(Connection& connection, bool readable, bool writable);
  void heartbeat(Time now, bool own_pause);
  void close(bool goodbye);
  const LinkEnd& end() const { return end_; }
  const std::vector<std::unique_ptr<Connection>>& connections() const { return connections_; }

 private:
  struct Slot {
    device::Buffer buffer;
    std::size_t bytes = 0;
    bool begun = false;
    std::vector<bool> parts;   // those that have begun; empty for a message that comes whole
    std::size_t received = 0;  // bytes of what is complete
    BusyMeter::Message message;
    std::int64_t elsewhere = 0;  // bytes that waited in other connections at the first look
  };

  Connection& main() { return *connections_.front(); }
  Result<std::span<std::byte>> begin(const Connection& connection, const FrameHeader& header);
  Result<std::span<std::byte>> begin_part(const Connection& connection, Slot& slot,
                                          const FrameHeader& header);
  void begin_message(Slot& slot);
  void grant();
  void flush_all();
  Status complete(Connection& connection, const FrameHeader& header,
                  const BusyMeter::Message& message);
  void deliver();

  std::mutex inbox_mutex_;  // guards inbox_
  std::vector<Slot> inbox_;

  const LinkEnd end_;
  std::mutex mutex_;  // guards the fields below
  const std::vector<std::unique_ptr<Connection>> connections_;
  Callbacks callbacks_;
  std::deque<Slot> slots_;                        // granted, from message received_ on
  std::chrono::steady_clock::time_point last_{};  // when the last message was complete
  std::uint64_t posted_ = 0;
  std::uint64_t received_ = 0;
  BusyMeter meter_;
  BoundaryTraffic traffic_;
};

}  // namespace weir::transport::tcp
