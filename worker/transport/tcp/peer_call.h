// SPDX-License-Identifier: Apache-2.0
// One request to one peer, independent of generations: dials, then Derived uses the socket, then
// Done is called once, or not at all after cancel(). Io thread only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "worker/wire/dialer.h"

namespace weir::transport::tcp {

template <class Answer>
class PeerCall : public std::enable_shared_from_this<PeerCall<Answer>> {
 public:
  using Done = std::function<void(Result<Answer>)>;  // called once

  PeerCall(boost::asio::io_context& context, Done done)
      : timer_(context), context_(context), done_(std::move(done)) {}
  virtual ~PeerCall() = default;
  PeerCall(const PeerCall&) = delete;
  PeerCall& operator=(const PeerCall&) = delete;

  void start(wire::Dialer::Target target) {
    const auto dialled = [weak = this->weak_from_this()](Result<wire::Dialer::Socket> socket) {
      const auto self = weak.lock();
      if (!self || self->finished_) return;
      if (!socket) return self->finish(socket.error());
      self->socket_.emplace(*std::move(socket));
      self->connected();
    };
    dialer_ = std::make_shared<wire::Dialer>(context_, std::move(target), dialled);
    dialer_->start();
  }
  void cancel() {
    finished_ = true;
    timer_.cancel();
    if (dialer_) dialer_->cancel();
    boost::system::error_code ignored;
    if (socket_) socket_->close(ignored);
  }

 protected:
  virtual void connected() = 0;  // socket_ is set
  void finish(Result<Answer> result) {
    if (finished_) return;
    cancel();
    done_(std::move(result));
  }
  // Describes what the call waits for: the reason why it has no connection, or what the peer has
  // yet to do.
  std::string waits_for(const char* of_peer) const {
    return socket_ ? of_peer : dialer_->last_problem();
  }

  boost::asio::steady_timer timer_;
  std::optional<wire::Dialer::Socket> socket_;
  bool finished_ = false;

 private:
  boost::asio::io_context& context_;
  const Done done_;
  std::shared_ptr<wire::Dialer> dialer_;
};

}  // namespace weir::transport::tcp
