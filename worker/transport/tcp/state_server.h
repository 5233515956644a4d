// SPDX-License-Identifier: Apache-2.0
// The side that holds state: lets peers fetch with the key of the current offer, keeps those
// waiting that are ahead of it, and sends. Io thread only.
#pragma once

#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "worker/transport/state_exchange.h"
#include "worker/transport/tcp/place.h"
#include "worker/transport/tcp/state_stream.h"
#include "worker/transport/tcp/traffic_order.h"
#include "worker/wire/acceptor.h"
#include "worker/wire/pending.h"
#include "worker/wire/socket_options.h"

namespace weir::transport::tcp {

class StateSender;

class StateServer : public std::enable_shared_from_this<StateServer> {
 public:
  // Without an order what is sent waits for no other traffic.
  StateServer(wire::SocketOptions options, std::shared_ptr<TrafficOrder> order)
      : options_(std::move(options)), order_(std::move(order)) {}

  void offer(StateKey key, std::vector<LayerMemory> layers);
  void withdraw();  // also ends running fetches
  void close();
  // Takes a connection whose HELLO asks for state.
  void admit(const std::shared_ptr<wire::Acceptor>& acceptor, const Place& place);

 private:
  struct Offer {
    StateKey key;
    std::vector<LayerMemory> layers;
  };

  void let_in(const std::shared_ptr<wire::Acceptor>& acceptor);

  const wire::SocketOptions options_;
  const std::shared_ptr<TrafficOrder> order_;
  std::shared_ptr<const Offer> offer_;
  wire::Pending pending_{1024};  // ranks of a large job that are ahead of this one
  std::list<std::weak_ptr<StateSender>> senders_;
  RoundTrips round_trips_;
};

}  // namespace weir::transport::tcp
