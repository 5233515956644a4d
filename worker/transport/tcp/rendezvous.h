// SPDX-License-Identifier: Apache-2.0
// One connect(): waits until all connections of a generation, dialled and accepted, stand. Io
// thread only, except outcome().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "worker/base/bounded_queue.h"
#include "worker/transport/tcp/connection.h"
#include "worker/transport/tcp/dialer.h"
#include "worker/transport/tcp/greeter.h"
#include "worker/transport/tcp/tcp_transport.h"

namespace weir::transport::tcp {

class Rendezvous : public std::enable_shared_from_this<Rendezvous> {
 public:
  // group: instead of neighbours, the other replicas of a stage; `generation` then names the stage
  // as its replica and this rank's replica as its stage, as `group` does.
  Rendezvous(boost::asio::io_context& context, Generation generation, const TcpOptions& options,
             std::vector<PeerAddress> group = {});

  GenerationId id() const { return {generation_.revision, generation_.incarnation}; }
  const Generation& generation() const { return generation_; }
  bool is_group() const { return !group_.empty(); }

  void start();
  bool expects(const Hello& hello) const;
  void greet(std::shared_ptr<Greeter> greeter);  // one that is expected

  // One item: all stand, or the error that ends the attempt. Any thread.
  BoundedQueue<Status>& outcome() { return outcome_; }
  // Ends it: the connections if all stand, else nothing (missing() then says which).
  std::vector<Joined> finish();
  bool complete() const;
  std::string missing() const;  // "stage 1 at ...: connection refused; no connection from stage 0"

 private:
  struct Slot {
    Port port;
    PeerAddress peer;
    std::shared_ptr<Dialer> dialer;  // of sending ports
    std::optional<boost::asio::ip::tcp::socket> socket;
    std::string problem;  // of a refused peer
  };

  void add(const std::optional<PeerAddress>& peer, Channel channel, bool sending);
  void dial(std::size_t index);
  std::string text_of(const PeerAddress& peer) const;
  void joined(std::size_t index, boost::asio::ip::tcp::socket socket);

  boost::asio::io_context& context_;
  const Generation generation_;
  const std::vector<PeerAddress> group_;
  const TcpOptions options_;
  std::vector<Slot> slots_;
  BoundedQueue<Status> outcome_{1};
  bool finished_ = false;
};

}  // namespace weir::transport::tcp
