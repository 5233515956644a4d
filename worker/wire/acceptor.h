// SPDX-License-Identifier: Apache-2.0
// The accepting side of one handshake: reads the HELLO and sends a challenge. It may then keep the
// peer waiting until its connection is expected, and accepts. Io thread only.
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

namespace weir::wire {

class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  // answer_limit: for each step of the handshake.
  Acceptor(Socket socket, std::chrono::milliseconds answer_limit);

  // Reads the HELLO. kTimeout: the peer says nothing. Without a HELLO the connection is useless.
  void start(std::function<void(const Status&)> done);
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
  // Sends a line as the first frame of a coordinator that speaks first, and closes.
  void tell(const std::string& line);
  void close();

 private:
  void accept(std::function<void(Result<Socket>)> done);
  void limit(std::chrono::milliseconds time);

  const std::chrono::milliseconds answer_limit_;
  RecordStream stream_;
  boost::asio::steady_timer timer_;
  std::string hello_text_;
  Hello hello_;
  std::string from_;
  bool silent_ = false;    // the HELLO did not come in time
  bool proven_ = false;    // by prove()
  bool answered_ = false;  // the callback of keep_waiting() must not be called any longer
};

}  // namespace weir::wire
