// SPDX-License-Identifier: Apache-2.0
// The receiving end of one (link, direction): grants one credit per posted receive, reads into its
// buffer, times the arrival and acknowledges it. Io thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "worker/transport/communicator.h"
#include "worker/transport/tcp/connection.h"

namespace weir::transport::tcp {

class IncomingLink : public std::enable_shared_from_this<IncomingLink> {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Hooks {
    std::function<void(std::uint64_t sequence)> received;
    std::function<void(const std::string& reason)> failed;
  };

  IncomingLink(Joined joined, GenerationId generation, std::chrono::nanoseconds dead_after);

  void start(Hooks hooks);
  void receive(device::Buffer buffer, std::size_t bytes);  // grants with the next flush()
  void flush();
  void heartbeat(Time now, bool own_pause);
  void close(bool goodbye) { connection_.close(goodbye); }
  const Port& port() const { return connection_.port(); }

 private:
  struct Slot {
    device::Buffer buffer;
    std::size_t bytes = 0;
  };

  Result<std::span<std::byte>> begin(const FrameHeader& header);
  Status complete(const FrameHeader& header, const BusyMeter::Message& message);

  Connection connection_;
  Hooks hooks_;
  std::deque<Slot> slots_;
  std::uint64_t posted_ = 0;
  std::uint64_t announced_ = 0;  // credits told to the peer
  std::uint64_t received_ = 0;
  BusyMeter meter_;
};

}  // namespace weir::transport::tcp
