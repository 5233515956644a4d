// SPDX-License-Identifier: Apache-2.0
// The receiving end of one (link, direction): grants one credit per posted receive, reads into its
// buffer, times the arrival and acknowledges it. Any thread.
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
  // On the engine thread: reads and writes as much as the socket allows; answers wait for a
  // flush(). Returns false if the connection has ended.
  bool serve(bool readable, bool writable);
  void heartbeat(Time now, bool own_pause);
  Connection& connection() { return connection_; }

 private:
  struct Slot {
    device::Buffer buffer;
    std::size_t bytes = 0;
  };

  Result<std::span<std::byte>> begin(const FrameHeader& header);
  void grant();
  Status complete(const FrameHeader& header, const BusyMeter::Message& message);

  std::mutex inbox_mutex_;  // guards inbox_
  std::vector<Slot> inbox_;

  Connection connection_;  // its mutex guards the fields below
  Callbacks callbacks_;
  std::deque<Slot> slots_;
  std::uint64_t posted_ = 0;
  std::uint64_t received_ = 0;
  BusyMeter meter_;
};

}  // namespace weir::transport::tcp
