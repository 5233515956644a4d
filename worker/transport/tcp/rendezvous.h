// SPDX-License-Identifier: Apache-2.0
// One connect(): waits until all connections of a generation, dialled and accepted, are
// established. Io thread only, except outcome().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "worker/base/bounded_queue.h"
#include "worker/transport/tcp/connection.h"
#include "worker/transport/tcp/place.h"
#include "worker/transport/tcp/tcp_transport.h"
#include "worker/wire/acceptor.h"
#include "worker/wire/dialer.h"

namespace weir::transport::tcp {

class Rendezvous : public std::enable_shared_from_this<Rendezvous> {
 public:
  // group: the other replicas of a stage instead of neighbours. `generation` then has the stage as
  // its replica and this rank's replica as its stage, and so does `group`.
  Rendezvous(boost::asio::io_context& context, Generation generation, const TcpOptions& options,
             std::vector<PeerAddress> group = {});

  GenerationId id() const { return {generation_.revision, generation_.incarnation}; }
  const Generation& generation() const { return generation_; }
  bool is_group() const { return !group_.empty(); }

  void start();
  // False: no such connection is expected.
  bool admit(const std::shared_ptr<wire::Acceptor>& acceptor, const Place& place);

  // Gets one item: all connections are established, or the error that ends the attempt. Any thread.
  BoundedQueue<Status>& outcome() { return outcome_; }
  // Ends the attempt: returns the connections if all are established, else nothing (see missing()).
  std::vector<Joined> finish();
  bool complete() const;
  std::string missing() const;  // "stage 1 at ...: connection refused; no connection from stage 0"

 private:
  struct Slot {
    LinkEnd end;
    PeerAddress peer;
    std::string problem = {};  // of a refused peer
    // One per connection. The sending end decides how many there are, and its connections tell the
    // receiving end.
    std::vector<std::shared_ptr<wire::Dialer>> dialers = {};  // for link ends that send
    std::vector<std::optional<boost::asio::ip::tcp::socket>> sockets = {};
    bool complete() const;
  };

  void add(const std::optional<PeerAddress>& peer, Channel channel, bool sending);
  int connections_of(const LinkEnd& end) const;
  wire::SocketOptions options_of(const Slot& slot) const;
  void dial(std::size_t index, int lane);
  std::string text_of(const PeerAddress& peer) const;
  void joined(std::size_t index, int lane, boost::asio::ip::tcp::socket socket);

  boost::asio::io_context& context_;
  const Generation generation_;
  const std::vector<PeerAddress> group_;
  const TcpOptions options_;
  std::vector<Slot> slots_;
  BoundedQueue<Status> outcome_{1};
  bool finished_ = false;
};

}  // namespace weir::transport::tcp
