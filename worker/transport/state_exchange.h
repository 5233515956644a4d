// SPDX-License-Identifier: Apache-2.0
// Moves the state of whole layers between live ranks, over the data port: a rank offers the memory
// of the layers it holds, others fetch from it. Apart from Communicator, as anybody may need layers
// of anybody and no generation of links stands while they move.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "worker/base/result.h"
#include "worker/transport/communicator.h"

namespace weir::transport {

// Which move: that of the plan `revision`, of the state after `step` steps. Both ends must agree.
struct StateKey {
  std::string job_uid, job_key;  // of the handshake on the data port; the key is raw
  std::uint32_t revision = 0;
  std::uint16_t incarnation = 0;
  std::int64_t step = 0;
};

// The memory of one layer, in an order that both ends know.
struct LayerMemory {
  int layer = 0;
  std::vector<std::span<std::byte>> parts;

  std::int64_t bytes() const {
    std::int64_t total = 0;
    for (const auto part : parts) total += static_cast<std::int64_t>(part.size());
    return total;
  }
};

struct StateRequest {
  PeerAddress from;
  std::vector<LayerMemory> layers;  // at least one; filled
};

class StateExchange {
 public:
  virtual ~StateExchange() = default;

  // Answers those who fetch with this key from now on, on a thread of its own; who came before
  // waits for it. The memory must neither change nor go before withdraw(). One offer at a time.
  virtual void offer(const StateKey& key, std::vector<LayerMemory> layers) = 0;
  // Not a byte is read after it returns. Nothing without an offer.
  virtual void withdraw() = 0;
  // Fills all layers, from all peers at once; each chunk's digest is checked. Blocks. Returns the
  // bytes that came. kTimeout: a peer fell silent, or the deadline; kUnavailable: a peer broke off;
  // kConflict: it holds another step or not these layers; kInvalid: damaged on the way; kCancelled:
  // stop. After an error the memory holds parts.
  virtual Result<std::int64_t> fetch(const StateKey& key, std::vector<StateRequest> requests,
                                     std::chrono::steady_clock::time_point deadline,
                                     std::stop_token stop) = 0;
};

}  // namespace weir::transport
