// SPDX-License-Identifier: Apache-2.0
// The fetching side of a state move: one request to one peer, from dialling to the last byte. Io
// thread only.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "worker/transport/state_exchange.h"
#include "worker/transport/tcp/peer_call.h"
#include "worker/transport/tcp/state_stream.h"
#include "worker/transport/tcp/state_wire.h"
#include "worker/transport/tcp/tcp_transport.h"

namespace weir::transport::tcp {

// The answer is the number of received bytes, or why some are missing.
class StateFetch final : public PeerCall<std::int64_t> {
 public:
  // Without an order what comes waits for no other traffic.
  StateFetch(boost::asio::io_context& context, StateRequest request, const StateKey& key,
             const TcpOptions& options, std::shared_ptr<TrafficOrder> order,
             std::shared_ptr<RoundTrips> round_trips, Done done);
  ~StateFetch() override;

  // Describes what the fetch waits for, e.g. "its data port: connection refused".
  std::string problem() const;

 private:
  void connected() override;
  void read_header();
  void read_chunk(const ChunkHeader& header);
  void read_refusal(const ChunkHeader& header);
  Result<std::span<std::byte>> room_for(const ChunkHeader& header) const;
  void await_bytes();  // restarts the timer for silence
  void pause();        // of a copy, after a piece
  void ask_for_next();

  StateRequest request_;
  const std::int64_t step_;
  const bool copy_;
  const std::chrono::seconds dead_after_;
  const int buffer_bytes_;
  const std::shared_ptr<TrafficOrder> order_;
  const std::shared_ptr<RoundTrips> round_trips_;
  std::shared_ptr<StateStream> stream_;  // null until it is connected
  std::string wish_, refusal_;
  std::array<std::byte, kChunkHeaderBytes> header_{};
  std::size_t layer_ = 0;     // index of the current layer
  std::uint64_t offset_ = 0;  // in the current layer
  std::int64_t bytes_ = 0;
  std::chrono::steady_clock::time_point asked_;  // of a copy, for the piece that comes
};

}  // namespace weir::transport::tcp
