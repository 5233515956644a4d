// SPDX-License-Identifier: Apache-2.0
// The data port. Accepts connections, reads their HELLO and decides: to the rendezvous that expects
// it, refuse (older generation, other job), or keep it waiting, since ranks reach connect() at
// different times. What it holds is bounded. Io thread only, except port().
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "worker/transport/tcp/greeter.h"
#include "worker/transport/tcp/parked.h"
#include "worker/transport/tcp/probe.h"
#include "worker/transport/tcp/rendezvous.h"
#include "worker/transport/tcp/state_server.h"

namespace weir::transport::tcp {

class Listener : public std::enable_shared_from_this<Listener> {
 public:
  // Whom connections go to that fetch state or time the network.
  Listener(boost::asio::io_context& context, std::shared_ptr<StateServer> state,
           std::shared_ptr<ProbeServer> probes);

  // kUnavailable: port in use or the like.
  Status open(const std::string& ip, int port);
  int port() const { return port_; }
  void close();

  // The generation that this rank opens now; kConflict: it has opened a newer one. Connections that
  // waited for it go on, older ones are refused.
  Status begin(std::shared_ptr<Rendezvous> rendezvous);
  void end();  // of the rendezvous; its generation stays the newest

 private:
  void accept();
  void accepted(boost::asio::ip::tcp::socket socket);
  void route(const std::shared_ptr<Greeter>& greeter);

  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer retry_;
  int port_ = 0;
  const std::shared_ptr<StateServer> state_;
  const std::shared_ptr<ProbeServer> probes_;
  std::string job_uid_;
  std::optional<GenerationId> newest_;
  std::shared_ptr<Rendezvous> rendezvous_;
  Parked parked_{32};  // a rank has two incoming connections; room for restarts and strangers
  std::size_t greeting_ = 0;  // connections whose HELLO has not come
};

}  // namespace weir::transport::tcp
