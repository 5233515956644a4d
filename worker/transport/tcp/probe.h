// SPDX-License-Identifier: Apache-2.0
// Times the network between two ranks before the first plan, independent of generations. After the
// handshake come kPings bytes there and back, the number of bytes as u64, then these bytes. The
// acceptor answers with the timed bytes (u64) and the nanoseconds by its own clock (u64), once all
// have come or kLongest after the first. Bytes that came at once in the beginning have no duration
// and are not counted. Io thread only.
#pragma once

#include <array>
#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "worker/transport/tcp/pacer.h"
#include "worker/transport/tcp/peer_call.h"
#include "worker/wire/acceptor.h"

namespace weir::transport::tcp {

// The asking side.
class ProbeCall final : public PeerCall<ProbedRate> {
 public:
  ProbeCall(boost::asio::io_context& context, std::int64_t bytes, std::optional<Pacer> pacer,
            Done done);

  std::string problem() const { return waits_for("it has not answered"); }

 private:
  void connected() override { ping(); }
  void ping();
  void send();        // the number of bytes, then the bytes
  void send_chunk();  // the next chunk, when the pacer allows it
  void read_answer();

  std::size_t left_;
  std::optional<Pacer> pacer_;
  std::chrono::steady_clock::time_point ping_sent_{};
  std::chrono::nanoseconds rtt_ = std::chrono::nanoseconds::max();
  int pings_ = 0;
  std::array<std::byte, 8> header_{};
  std::array<std::byte, 16> answer_{};
  std::vector<std::byte> payload_;  // sent repeatedly
};

class ProbeAnswer;

// The answering side. It refuses peers that do not hold the key.
class ProbeServer : public std::enable_shared_from_this<ProbeServer> {
 public:
  ProbeServer(std::string job_uid, std::string job_key)
      : job_uid_(std::move(job_uid)), job_key_(std::move(job_key)) {}

  void admit(const std::shared_ptr<wire::Acceptor>& acceptor);
  void close();

 private:
  const std::string job_uid_, job_key_;
  std::list<std::weak_ptr<ProbeAnswer>> answers_;
};

}  // namespace weir::transport::tcp
