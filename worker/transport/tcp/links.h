// SPDX-License-Identifier: Apache-2.0
// The links of one generation, used by two threads. While the engine thread waits for completions,
// it reads and writes the sockets itself; it also writes small messages at once. A hop then costs
// one wake-up, as with plain sockets. The io thread does everything else, and everything while the
// engine computes.
// Each connection has a mutex. No mutex is held while a thread waits.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "worker/base/bounded_queue.h"
#include "worker/transport/communicator.h"
#include "worker/transport/tcp/engine_poll.h"
#include "worker/transport/tcp/incoming_link.h"
#include "worker/transport/tcp/outgoing_link.h"
#include "worker/transport/tcp/tcp_transport.h"
#include "worker/transport/tcp/traffic_order.h"

namespace weir::transport::tcp {

class Links : public std::enable_shared_from_this<Links> {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Links(boost::asio::io_context& context, Generation generation, const TcpOptions& options,
        Time transport_start, std::shared_ptr<TrafficOrder> order);

  // Io thread.
  void start(std::vector<Joined> joined);
  void close(bool goodbye);

  // Engine thread.
  void send(const LinkEnd& end, device::Buffer buffer, std::size_t bytes);
  void receive(const LinkEnd& end, device::Buffer buffer, std::size_t bytes);
  std::optional<Completion> wait(Time deadline, const std::stop_token& stop);

  // Any thread.
  void fail(const LinkEnd& end, const std::string& reason);
  bool failed() const { return failed_; }
  bool peer_left(const LinkEnd& end) const;
  std::vector<LinkReport> reports() const;

 private:
  std::optional<Pacer> pacer_of(const LinkEnd& end) const;
  int boundary_of(const LinkEnd& end) const;
  void add(Joined joined);
  void start_links();
  void complete(Completion completion);
  std::optional<Completion> done();
  std::optional<Completion> drive_until(Time deadline, const std::stop_token& stop);
  void wake_engine();
  enum class Flush : unsigned char { kAll, kSmall, kPatient };
  void flush_links(Flush how);
  void flush_by_io(const std::shared_ptr<OutgoingLink>& link);
  void serve_ready();
  void schedule_idle_service();
  void run_idle_service();
  void tell_dead_peers() const;
  void start_idle_timer(Time time);
  void idle_timer_fired();
  void beat();

  boost::asio::io_context& context_;
  const Generation generation_;
  const TcpOptions options_;
  const Time transport_start_;
  const std::shared_ptr<TrafficOrder> order_;
  const std::chrono::nanoseconds beat_interval_;
  boost::asio::steady_timer beat_timer_;  // io thread
  Time last_beat_{};
  bool closed_ = false;  // io thread

  std::atomic<bool> engine_drives_ = false;
  std::atomic<bool> engine_sleeps_ = false;  // inside EnginePoll::wait
  EnginePoll engine_poll_;

  // By channel. Made before the communicator is handed out, then constant.
  std::array<std::shared_ptr<OutgoingLink>, 2> outgoing_;
  std::array<std::shared_ptr<IncomingLink>, 2> incoming_;
  std::vector<Connection*> connections_;  // of both directions, outgoing first
  std::shared_ptr<SocketWatch> watch_;

  Time flushed_{};                              // engine thread: time of its last flush
  std::atomic<Time> left_{};                    // when the engine last stopped waiting
  std::atomic<bool> idle_service_due_ = false;  // the timer is running
  Time left_at_timer_{};                        // left_ when the timer was started
  std::mutex idle_mutex_;                       // guards idle_timer_
  boost::asio::steady_timer idle_timer_;

  BoundedQueue<Completion> completions_;
  std::atomic<bool> failed_ = false;
  mutable std::mutex failure_mutex_;  // guards failure_
  std::optional<Completion> failure_;
};

}  // namespace weir::transport::tcp
