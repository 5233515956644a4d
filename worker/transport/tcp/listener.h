// SPDX-License-Identifier: Apache-2.0
// The data port: passes each connection that has proven the job key (wire/door.h) to the rendezvous
// that expects it, refuses it (older generation, other job), or keeps it waiting, because ranks
// call connect() at different times. Io thread only, except port().
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "worker/base/strangers.h"
#include "worker/transport/tcp/probe.h"
#include "worker/transport/tcp/rendezvous.h"
#include "worker/transport/tcp/state_server.h"
#include "worker/wire/door.h"
#include "worker/wire/pending.h"

namespace weir::transport::tcp {

class Listener : public std::enable_shared_from_this<Listener> {
 public:
  // moves, copies and probes get the connections that fetch state or time the network. job_key: ""
  // if only the receivers of connections know it.
  Listener(boost::asio::io_context& context, std::shared_ptr<StateServer> moves,
           std::shared_ptr<StateServer> copies, std::shared_ptr<ProbeServer> probes,
           std::string job_uid, std::string job_key);

  // kUnavailable: e.g. the port is in use.
  Status open(const std::string& ip, int port);
  int port() const { return door_->port(); }
  void close();

  // Sets the generation that this rank opens now. kConflict: it has opened a newer one. Connections
  // that wait for this generation continue; older ones are refused.
  Status begin(std::shared_ptr<Rendezvous> rendezvous);
  void end();  // ends the rendezvous; its generation remains the newest

 private:
  void route(const std::shared_ptr<wire::Acceptor>& acceptor);

  boost::asio::io_context& context_;
  std::shared_ptr<wire::Door> door_;
  const std::shared_ptr<StateServer> moves_, copies_;
  const std::shared_ptr<ProbeServer> probes_;
  const std::string own_job_uid_, job_key_;
  std::string job_uid_;  // of the newest generation
  std::optional<GenerationId> newest_;
  std::shared_ptr<Rendezvous> rendezvous_;
  wire::Pending pending_{1024};  // two from neighbours, and those of the other replicas
};

}  // namespace weir::transport::tcp
