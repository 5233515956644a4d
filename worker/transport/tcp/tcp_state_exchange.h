// SPDX-License-Identifier: Apache-2.0
// StateExchange over the data port of a TcpTransport.
#pragma once

#include <memory>

#include "worker/transport/state_exchange.h"
#include "worker/transport/tcp/io_thread.h"
#include "worker/transport/tcp/state_fetch.h"
#include "worker/transport/tcp/state_server.h"
#include "worker/transport/tcp/tcp_transport.h"

namespace weir::transport::tcp {

class TcpStateExchange final : public StateExchange {
 public:
  TcpStateExchange(TcpOptions options, std::shared_ptr<IoThread> io,
                   std::shared_ptr<StateServer> moves, std::shared_ptr<StateServer> copies,
                   std::shared_ptr<TrafficOrder> order)
      : options_(std::move(options)),
        order_(std::move(order)),
        io_(std::move(io)),
        moves_(std::move(moves)),
        copies_(std::move(copies)) {}
  ~TcpStateExchange() override;

  void offer(const StateKey& key, std::vector<LayerMemory> layers) override;
  void withdraw() override;
  void withdraw_copy() override;
  Result<std::int64_t> fetch(const StateKey& key, std::vector<StateRequest> requests,
                             std::chrono::steady_clock::time_point deadline,
                             std::stop_token stop) override;

 private:
  const TcpOptions options_;
  const std::shared_ptr<TrafficOrder> order_;
  const std::shared_ptr<RoundTrips> round_trips_ = std::make_shared<RoundTrips>();
  std::shared_ptr<IoThread> io_;
  std::shared_ptr<StateServer> moves_, copies_;
};

}  // namespace weir::transport::tcp
