// SPDX-License-Identifier: Apache-2.0
// The side that lacks state: one request to one peer, from the dialling to the last byte. Io thread
// only.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "worker/transport/state_exchange.h"
#include "worker/transport/tcp/dialer.h"
#include "worker/transport/tcp/state_wire.h"

namespace weir::transport::tcp {

class StateFetch : public std::enable_shared_from_this<StateFetch> {
 public:
  // Bytes that came, or why not all. Once.
  using Done = std::function<void(Result<std::int64_t>)>;
  StateFetch(boost::asio::io_context& context, StateRequest request, std::int64_t step,
             std::chrono::seconds dead_after, Done done);

  void start(Dialer::Target target);
  void cancel();  // no done after it
  // What it waits for now: "its data port: connection refused".
  std::string problem() const;

 private:
  void connected(Dialer::Socket socket);
  void read_header();
  void read_chunk(const ChunkHeader& header);
  void read_refusal(const ChunkHeader& header);
  Result<std::span<std::byte>> room_for(const ChunkHeader& header) const;
  void await_bytes();  // restarts the clock of silence
  void finish(Result<std::int64_t> result);
  std::string peer() const { return name_; }

  boost::asio::io_context& context_;
  StateRequest request_;
  const std::int64_t step_;
  const std::chrono::seconds dead_after_;
  const std::string name_;
  Done done_;
  boost::asio::steady_timer silence_;
  std::shared_ptr<Dialer> dialer_;
  std::optional<Dialer::Socket> socket_;
  std::string wish_, refusal_;
  std::array<std::byte, kChunkHeaderBytes> header_{};
  std::size_t layer_ = 0;     // index of the one that comes
  std::uint64_t offset_ = 0;  // in it
  std::int64_t bytes_ = 0;
  bool finished_ = false;
};

}  // namespace weir::transport::tcp
