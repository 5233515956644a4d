// SPDX-License-Identifier: Apache-2.0
// Makes the links of one generation. Neighbours exchange their versions, GPUs and unique ids over
// TCP, make the communicators without blocking, and send one small message over each, because NCCL
// connects lazily. Everything runs on the calling thread, within a deadline.
#pragma once

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "worker/device/device.h"
#include "worker/transport/nccl/nccl_communicator.h"

namespace weir::transport::nccl {

class Introduction {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Introduction(NcclApi& api, device::Device& device, const Generation& generation,
               std::unique_ptr<Communicator> tcp);

  // Call it once. kTimeout, kUnavailable and kConflict (check_peer) name the peer and the link;
  // kCancelled: stop was requested. On failure, everything that was opened is aborted.
  Result<LinksUp> run(Time deadline, const std::stop_token& stop);

 private:
  struct Planned {  // one link
    LinkEnd end;
    PeerAddress peer;
    std::string name;
    UniqueId id{};
    bool known = false;  // the id is known
  };

  void plan(const std::optional<PeerAddress>& peer, Channel channel, bool sending);
  Status say_hello();
  Status hear(const SideChannel::Arrived& arrived);
  Result<bool> all_heard();
  Status open();
  Result<bool> all_ready();
  Status warm();
  Result<bool> all_warm();
  // Reads records until `done` returns true. At the deadline the error names `awaited` and the
  // peer.
  Status until(Result<bool> (Introduction::*done)(), const char* awaited);
  std::string first_missing() const;

  NcclApi& api_;
  device::Device& device_;
  const Generation& generation_;
  const Facts facts_;
  std::vector<Planned> planned_;
  std::vector<device::Buffer> warm_memory_;  // declared before the links that may still use it
  LinksUp up_;
  std::vector<bool> finished_;  // per link: finished what until() waits for
  Time deadline_{};
  std::stop_token stop_;
};

}  // namespace weir::transport::nccl
