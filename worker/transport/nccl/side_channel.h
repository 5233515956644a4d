// SPDX-License-Identifier: Apache-2.0
// Records over the TCP communicator of the same generation, in order per neighbour, both ways. NCCL
// links use its liveness, goodbyes and error texts, too. One thread uses it; any thread may call
// abort() and const functions.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "worker/transport/communicator.h"
#include "worker/transport/nccl/records.h"

namespace weir::transport::nccl {

class SideChannel {
 public:
  struct Arrived {
    LinkEnd end;  // the neighbour that wrote it
    Record record;
  };

  explicit SideChannel(std::unique_ptr<Communicator> tcp) : tcp_(std::move(tcp)) {}

  void listen(const LinkEnd& end);  // call it once per receiving link end
  void send(const LinkEnd& end, const Record& record);
  // Returns the next record; nothing at the deadline or after a stop request. kUnavailable: the
  // generation is broken. kInvalid: a damaged record. Both name the peer.
  Result<std::optional<Arrived>> wait(std::chrono::steady_clock::time_point deadline,
                                      std::stop_token stop);
  bool delivered() const { return undelivered_ == 0; }  // the peers have all records

  bool peer_left(const LinkEnd& end) const { return tcp_->peer_left(end); }
  std::vector<LinkReport> reports() const { return tcp_->reports(); }
  void abort(const std::string& reason) noexcept { tcp_->abort(reason); }

 private:
  struct Slots {
    LinkEnd end;
    std::deque<device::Buffer> posted;
  };
  void post(Slots& slots, device::Buffer buffer);

  std::unique_ptr<Communicator> tcp_;
  std::vector<Slots> slots_;
  int undelivered_ = 0;
};

}  // namespace weir::transport::nccl
