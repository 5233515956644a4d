// SPDX-License-Identifier: Apache-2.0
// The connecting side: finds the peer, connects and proves the key. Io thread only.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "worker/base/name_lookup.h"
#include "worker/base/result.h"
#include "worker/wire/handshake.h"
#include "worker/wire/record.h"
#include "worker/wire/socket_options.h"

namespace weir::wire {

class Dialer : public std::enable_shared_from_this<Dialer> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  struct Target {
    std::string host;  // name or IP address
    int port = 0;
    Hello hello;  // the dialer sets its nonce
    std::string key;
    SocketOptions socket;
    bool again = true;  // until it is cancelled, because ranks start at different times
    // Called each `silent_after` without any answer of the peer's machine: neither an accepted nor
    // a refused connection. A peer that is only late accepts, and its kernel does so for a process
    // that stands still. Null: not called.
    std::function<void()> silent = nullptr;
    std::chrono::seconds silent_after{30};
  };
  // Called once with the socket, kForbidden (wrong key, other job) or kConflict (older generation);
  // kUnavailable if it does not try again.
  using Done = std::function<void(Result<Socket>)>;

  Dialer(boost::asio::io_context& context, Target target, Done done);

  void start();
  void cancel();
  const std::string& last_problem() const { return last_problem_; }

 private:
  using Endpoints = std::vector<boost::asio::ip::tcp::endpoint>;

  void look_up(std::chrono::milliseconds pause);
  void connect(Endpoints endpoints, std::size_t index);
  void send_hello(Socket socket);
  void answered(Result<Record> record);
  void challenged(const Record& record);
  void judged(Result<Record> record);
  void refused(const Record& record);
  void heard() { heard_ = std::chrono::steady_clock::now(); }
  void retry(const std::string& problem);
  void finish(Result<Socket> result);
  bool stale(std::uint64_t attempt) const { return finished_ || attempt != attempt_; }

  boost::asio::io_context& context_;
  Target target_;
  Done done_;
  std::string hello_text_;
  std::optional<NameLookup> lookup_;
  boost::asio::steady_timer timer_, lookup_timer_;
  std::unique_ptr<Socket> connecting_;
  std::shared_ptr<RecordStream> stream_;
  std::uint64_t attempt_ = 0;  // late handlers of an earlier attempt do nothing
  std::chrono::milliseconds delay_;
  // The last answer, or the last call of Target::silent.
  std::chrono::steady_clock::time_point heard_ = std::chrono::steady_clock::now();
  std::string last_problem_ = "not tried yet";
  bool finished_ = false;
};

}  // namespace weir::wire
