// SPDX-License-Identifier: Apache-2.0
// Tells the io thread once per request that a data socket can be read or written. It is an epoll
// instance of its own inside Asio's: a socket without a request wakes no thread, so that the engine
// thread can read it alone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

namespace weir::transport::tcp {

class SocketWatch : public std::enable_shared_from_this<SocketWatch> {
 public:
  // Called on the io thread, with the requested events; both if the socket is broken.
  using Handler = std::function<void(bool readable, bool writable)>;

  explicit SocketWatch(boost::asio::io_context& context);

  void start();
  void stop();  // io thread

  // Any thread.
  std::uint64_t add(int descriptor, Handler handler);
  void ask(std::uint64_t id, bool readable, bool writable);  // replaces the previous request
  void remove(std::uint64_t id);  // the handler may run once more if it is about to

 private:
  struct Watched {
    int descriptor = -1;
    std::shared_ptr<Handler> handler;
  };

  void await();
  void dispatch();

  boost::asio::posix::stream_descriptor epoll_;
  std::mutex mutex_;  // guards watched_ and last_id_
  std::map<std::uint64_t, Watched> watched_;
  std::uint64_t last_id_ = 0;
};

}  // namespace weir::transport::tcp
