// SPDX-License-Identifier: Apache-2.0
// The Communicator of the TCP transport: owns the links of one generation and ends them.
#pragma once

#include <memory>

#include "worker/transport/communicator.h"
#include "worker/transport/tcp/io_thread.h"
#include "worker/transport/tcp/links.h"

namespace weir::transport::tcp {

class TcpCommunicator final : public Communicator {
 public:
  TcpCommunicator(std::shared_ptr<IoThread> io, std::shared_ptr<Links> links)
      : io_(std::move(io)), links_(std::move(links)) {}
  // Tells the peers that this rank leaves, unless the links have failed.
  ~TcpCommunicator() override {
    io_->call([this] {
      links_->close(!links_->failed());
      return true;
    });
  }
  TcpCommunicator(const TcpCommunicator&) = delete;
  TcpCommunicator& operator=(const TcpCommunicator&) = delete;

  void send(const LinkEnd& end, device::Buffer buffer, std::size_t bytes) override {
    links_->send(end, std::move(buffer), bytes);
  }
  void receive(const LinkEnd& end, device::Buffer buffer, std::size_t bytes) override {
    links_->receive(end, std::move(buffer), bytes);
  }
  std::optional<Completion> wait(std::chrono::steady_clock::time_point deadline,
                                 std::stop_token stop) override {
    return links_->wait(deadline, stop);
  }
  bool peer_left(const LinkEnd& end) const override { return links_->peer_left(end); }
  std::vector<LinkReport> reports() const override { return links_->reports(); }
  void abort(const std::string& reason) noexcept override { links_->fail({}, reason); }

 private:
  std::shared_ptr<IoThread> io_;
  std::shared_ptr<Links> links_;
};

}  // namespace weir::transport::tcp
