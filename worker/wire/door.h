// SPDX-License-Identifier: Apache-2.0
// A port. It accepts connections, reads their HELLO and lets them prove the job key. The number of
// connections is limited, and unproven ones cannot keep others out (base/strangers.h). Io thread
// only, except port().
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "worker/base/result.h"
#include "worker/base/strangers.h"
#include "worker/wire/acceptor.h"

namespace weir::wire {

struct DoorOptions {
  std::string name;              // "data port", in errors
  std::string job_uid, job_key;  // without a key, connections are passed on before they prove one
  std::size_t most_strangers = 0, most_of_one_address = 0;
  std::chrono::milliseconds answer_time{10000};  // for each step of the handshake
  // One line for the log and for peers that wait for the first word, which are then closed.
  std::string to_silent_peers = {};
};

class Door : public std::enable_shared_from_this<Door> {
 public:
  // Gets each connection that has proven the key.
  using Known = std::function<void(const std::shared_ptr<Acceptor>&)>;

  Door(boost::asio::io_context& context, DoorOptions options, Known known);

  // Listens; connections wait until start(). ip: "" = all addresses, IPv4 and IPv6. kUnavailable:
  // e.g. the port is in use.
  Status open(const std::string& ip, int port);
  void start() { accept(); }
  int port() const { return port_; }
  void close();

 private:
  bool bind(const boost::asio::ip::tcp::endpoint& endpoint, boost::system::error_code& error);
  void accept();
  void accepted(boost::asio::ip::tcp::socket socket);
  void meet(const std::shared_ptr<Acceptor>& acceptor, Strangers::Id id);
  void forget(Strangers::Id id);
  void drop(std::optional<Strangers::Id> stranger);

  const DoorOptions options_;
  const Known known_;
  boost::asio::ip::tcp::acceptor tcp_acceptor_;
  boost::asio::steady_timer retry_;
  int port_ = 0;
  Strangers strangers_;
  std::map<Strangers::Id, std::weak_ptr<Acceptor>> acceptors_;  // connections that are strangers
  Strangers::Id last_id_ = 0;
};

}  // namespace weir::wire
