// SPDX-License-Identifier: Apache-2.0
// TCP transport on Boost.Asio: the listener of the data port, which outlives generations, and the
// communicators made from it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "worker/base/result.h"
#include "worker/transport/collective.h"
#include "worker/transport/communicator.h"
#include "worker/transport/state_exchange.h"
#include "worker/transport/tcp/packed_sums.h"
#include "worker/wire/dialer.h"
#include "worker/wire/socket_options.h"

namespace weir::transport {

// Limits a link in user space, to emulate a shared network without root in tests and benches. Off
// by default.
struct Pacing {
  double bytes_per_second = 0;  // 0 = unlimited
  // Share in (0, 1] of that rate from a time on, counted from the start of the transport; sorted.
  // From --pace-trace.
  std::vector<std::pair<std::chrono::nanoseconds, double>> trace;
  int boundary = -1;  // -1 = all links of this rank
  int channel = -1;   // -1 = both, 0 = forward, 1 = backward
};
// The pacing of a link and direction; nullptr: it is not limited.
const Pacing* pacing_of(const std::vector<Pacing>& pacings, int boundary, Channel channel);
// Reads lines "time-seconds share"; '#' starts a comment. kInvalid names file:line and the reason.
Result<std::vector<std::pair<std::chrono::nanoseconds, double>>> read_pace_trace(
    const std::string& path);

constexpr int kMostConnections = 16;  // of a link and direction

struct TcpOptions {
  std::string listen_ip;               // "" = all addresses, IPv4 and IPv6
  int data_port = 7071;                // 0 = any free port
  int send_buffer_bytes = 128 * 1024;  // SO_SNDBUF; worker/transport/README.md "What limits a link"
  // Connections per link and direction in which this rank sends, at most kMostConnections. 0:
  // chosen by measuring (tcp/connection_count.h). A paced link has one.
  int connections = 1;
  // TCP_CONGESTION of all sockets of data; "" = the kernel's default.
  std::string congestion_control;
  // DSCP of tensors between stages, and of sums, averages and state; nothing: no mark.
  std::optional<int> boundary_dscp, bulk_dscp;
  // TCP_USER_TIMEOUT; also the longest silence while data is due.
  std::chrono::seconds dead_after{30};
  std::vector<Pacing> pacing;                               // the first match counts
  tcp::SumEncoding sum_encoding = tcp::SumEncoding::kAuto;  // of sums among replicas
  // Tensors between stages first, then sums, then what runs beside steps (tcp/traffic_order.h).
  bool order_traffic = true;
  // The network between this rank and the peer is broken, or its machine is gone. Called while
  // ranks meet or state moves, each `dead_after` in which no answer came from the peer's port, and
  // when a generation ends in which its kernel has not answered for half of that. On the
  // transport's thread or that of the engine; must not block. May be null.
  std::function<void(const PeerAddress& peer)> on_silent;
  // For probes, which come before any generation: only ranks that hold this key are answered.
  std::string job_uid, job_key;
};

// Options of a socket that carries tensors between stages, or all else. The send buffer is that of
// a whole link.
wire::SocketOptions socket_options_of(const TcpOptions& options, bool boundary);
// Lets a dialer of that target call TcpOptions::on_silent.
void tell_silence(wire::Dialer::Target& target, const PeerAddress& peer, const TcpOptions& options);
// Calls TcpOptions::on_silent if nothing on the way to that peer answers. Sockets that train have
// something to acknowledge each second.
void tell_if_dead(int descriptor, const PeerAddress& peer, const TcpOptions& options);

// Network from this rank to a peer, one direction.
struct ProbedRate {
  double bytes_per_second = 0;  // 0: too little came to be timed
  double rtt_seconds = 0;       // minimum of a few
};

class TcpTransport {
 public:
  virtual ~TcpTransport() = default;
  virtual int data_port() const = 0;
  // Connects to the peers of this generation and accepts their connections. Retries refused and
  // unresolved peers until the deadline. Blocks. Errors: kTimeout names the peer that did not come,
  // kForbidden is a wrong key, kConflict an older generation, kCancelled a stop request.
  virtual Result<std::unique_ptr<Communicator>> connect(
      const Generation& generation, std::chrono::steady_clock::time_point deadline,
      std::stop_token stop) = 0;
  // The same for the other replicas of this rank's stage. Call it after connect() of the same
  // generation.
  virtual Result<std::unique_ptr<Collective>> connect_replica_group(
      const ReplicaGroupGeneration& generation, std::chrono::steady_clock::time_point deadline,
      std::stop_token stop) = 0;
  // Times the network to the data port of a peer: a few round trips, then `bytes`, or as many as
  // pass within half a second. Pacing of all links applies. Blocks; one thread at a time. kTimeout
  // names what it waited for. kForbidden: the peer belongs to another job.
  virtual Result<ProbedRate> probe(const PeerAddress& peer, std::int64_t bytes,
                                   std::chrono::steady_clock::time_point deadline,
                                   std::stop_token stop) = 0;
  // Exchanges layers with other ranks over the same port. Lives as long as the transport.
  virtual StateExchange& state() = 0;
};

// The error is kUnavailable, e.g. "data port 7071: address already in use".
Result<std::unique_ptr<TcpTransport>> make_tcp_transport(const TcpOptions& options);

}  // namespace weir::transport
