// SPDX-License-Identifier: Apache-2.0
// StateExchange over the data port of a TcpTransport.
#pragma once

#include <memory>

#include "worker/transport/state_exchange.h"
#include "worker/transport/tcp/io_thread.h"
#include "worker/transport/tcp/state_server.h"
#include "worker/transport/tcp/tcp_transport.h"

namespace weir::transport::tcp {

class TcpStateExchange final : public StateExchange {
 public:
  TcpStateExchange(TcpOptions options, std::shared_ptr<IoThread> io,
                   std::shared_ptr<StateServer> server)
      : options_(std::move(options)), io_(std::move(io)), server_(std::move(server)) {}
  ~TcpStateExchange() override;

  void offer(const StateKey& key, std::vector<LayerMemory> layers) override;
  void withdraw() override;
  Result<std::int64_t> fetch(const StateKey& key, std::vector<StateRequest> requests,
                             std::chrono::steady_clock::time_point deadline,
                             std::stop_token stop) override;

 private:
  const TcpOptions options_;
  std::shared_ptr<IoThread> io_;
  std::shared_ptr<StateServer> server_;
};

}  // namespace weir::transport::tcp
