// SPDX-License-Identifier: Apache-2.0
// The links of one generation. The engine thread leaves commands in an inbox that the io thread
// empties; completions come back through a queue.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include "worker/base/bounded_queue.h"
#include "worker/transport/communicator.h"
#include "worker/transport/tcp/incoming_link.h"
#include "worker/transport/tcp/io_thread.h"
#include "worker/transport/tcp/outgoing_link.h"
#include "worker/transport/tcp/tcp_transport.h"

namespace weir::transport::tcp {

// What the io thread and the communicator share; handlers keep it alive.
class Links : public std::enable_shared_from_this<Links> {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Links(boost::asio::io_context& context, Generation generation, const TcpOptions& options,
        Time transport_start);

  // Io thread.
  void start(std::vector<Joined> joined);
  void close(bool goodbye);

  // Engine thread.
  void post(const Port& port, device::Buffer buffer, std::size_t bytes);
  std::optional<Completion> wait(Time deadline, std::stop_token stop);

  // Any thread.
  void fail(const Port& port, const std::string& reason);
  bool failed() const;
  std::vector<LinkReport> reports() const;

 private:
  struct Command {
    Port port;
    device::Buffer buffer;
    std::size_t bytes = 0;
  };

  std::optional<Pacer> pacer_of(const Port& port) const;
  bool has(const Port& port) const;
  int boundary_of(const Port& port) const;
  void add(Joined joined);
  void empty_inbox();
  void beat();

  boost::asio::io_context& context_;
  const Generation generation_;
  const TcpOptions options_;
  const Time transport_start_;
  const std::chrono::nanoseconds beat_interval_;
  boost::asio::steady_timer beat_timer_;
  Time last_beat_{};

  // By channel; made before the communicator is handed out and then constant.
  std::array<std::shared_ptr<OutgoingLink>, 2> outgoing_;
  std::array<std::shared_ptr<IncomingLink>, 2> incoming_;

  std::mutex inbox_mutex_;  // guards the two below
  std::vector<Command> inbox_;
  bool inbox_posted_ = false;

  BoundedQueue<Completion> completions_;
  mutable std::mutex failure_mutex_;  // guards failure_
  std::optional<Completion> failure_;
};

class TcpCommunicator final : public Communicator {
 public:
  TcpCommunicator(std::shared_ptr<IoThread> io, std::shared_ptr<Links> links);
  ~TcpCommunicator() override;
  TcpCommunicator(const TcpCommunicator&) = delete;
  TcpCommunicator& operator=(const TcpCommunicator&) = delete;

  void send(const Port& port, device::Buffer buffer, std::size_t bytes) override;
  void receive(const Port& port, device::Buffer buffer, std::size_t bytes) override;
  std::optional<Completion> wait(std::chrono::steady_clock::time_point deadline,
                                 std::stop_token stop) override;
  std::vector<LinkReport> reports() const override;
  void abort(const std::string& reason) noexcept override;

 private:
  std::shared_ptr<IoThread> io_;
  std::shared_ptr<Links> links_;
};

}  // namespace weir::transport::tcp
