// SPDX-License-Identifier: Apache-2.0
// The accepting side of one handshake: reads the HELLO and sends a challenge. It may then keep the
// peer waiting until this rank has opened that generation, and accepts. Io thread only.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "worker/base/result.h"
#include "worker/wire/handshake.h"
#include "worker/wire/record.h"

namespace weir::transport::tcp {

class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  explicit Acceptor(Socket socket);

  // Reads the HELLO. Calls done(true) if hello() is valid, done(false) if the connection is
  // useless.
  void start(std::function<void(bool)> done);
  const Hello& hello() const { return hello_; }
  const std::string& from() const { return from_; }  // address of the peer

  // Proves the key and asks for the peer's proof. done: kForbidden if the peer has a wrong key; the
  // peer is told.
  void prove(const std::string& key, std::function<void(const Status&)> done);
  // Waits without answering. Calls `gone` if the peer closes the connection.
  void keep_waiting(std::function<void()> gone);
  // Asks for the proof unless it has been given, and accepts. done: the socket or the error.
  void challenge(const std::string& key, std::function<void(Result<Socket>)> done);
  void refuse(const Error& error);
  void close();

 private:
  void accept(std::function<void(Result<Socket>)> done);
  void limit(std::chrono::seconds time);

  RecordStream stream_;
  boost::asio::steady_timer timer_;
  std::string hello_body_;
  Hello hello_;
  std::string from_;
  bool proven_ = false;    // by prove()
  bool answered_ = false;  // the callback of keep_waiting() must not be called any longer
};

}  // namespace weir::transport::tcp
