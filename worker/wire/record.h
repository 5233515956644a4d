// SPDX-License-Identifier: Apache-2.0
// Handshake records over a socket. It reads exactly one record, so that the first frame stays in
// the socket. Io thread only; `keep` holds the owner during an operation.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/ip/tcp.hpp>

#include "worker/base/result.h"
#include "worker/wire/handshake.h"

namespace weir::wire {

class RecordStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Keep = std::shared_ptr<void>;

  explicit RecordStream(Socket socket) : socket_(std::move(socket)) {}

  Socket& socket() { return socket_; }
  Socket take_socket() { return std::move(socket_); }

  // kUnavailable: the peer closed, or the socket was closed here. kInvalid: not a record.
  void read(Keep keep, std::function<void(Result<Record>)> done);
  void write(Keep keep, const Record& record, std::function<void(Status)> done);
  void close();

 private:
  Socket socket_;
  std::array<char, kRecordPrefixBytes> prefix_{};
  Record record_;
  std::string out_;
};

}  // namespace weir::wire
