// SPDX-License-Identifier: Apache-2.0
// Moves the state of whole layers between live ranks, over the data port: a rank offers the memory
// of the layers that it holds, and others fetch from it. Independent of Communicator, because any
// rank may need layers of any other, and no generation of links exists during the move. Copies of
// snapshots go the same way while training goes on.
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

// Identifies a move: of the plan `revision`, of the state after `step` steps. Both ends must agree.
struct StateKey {
  std::string job_uid, job_key;  // for the handshake on the data port; the key is raw bytes
  std::uint32_t revision = 0;
  std::uint16_t incarnation = 0;
  std::int64_t step = 0;
  bool copy =
      false;  // of a snapshot: an offer beside that of a move, and a slow fetch (kCopyPiece)
};

// A copy comes in pieces of at most so many bytes, and after each the receiver pauses this many
// times as long as the piece took. So it has a fifth of a link's time at most, less where training
// makes pieces slow, and no tensor waits for more than a piece.
inline constexpr std::size_t kCopyPiece = std::size_t{256} * 1024;
inline constexpr int kCopyPauses = 4;

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
  std::vector<LayerMemory> layers;  // at least one; the fetch fills them
};

class StateExchange {
 public:
  virtual ~StateExchange() = default;

  // From now on answers ranks that fetch with this key, on a thread of its own. Ranks that come
  // earlier wait for it. The memory must not change or be freed before withdraw(). One offer of
  // each kind at a time.
  virtual void offer(const StateKey& key, std::vector<LayerMemory> layers) = 0;
  // Ends the offer of a move. After it returns, the memory is not read any longer. Does nothing
  // without an offer.
  virtual void withdraw() = 0;
  virtual void withdraw_copy() = 0;  // the same for the offer with StateKey::copy
  // Fills all layers, from all peers in parallel, and checks the digest of each chunk. Blocks.
  // Returns the number of received bytes. kTimeout: a peer was silent, or the deadline passed.
  // kUnavailable: a peer closed the connection. kConflict: it holds another step or not these
  // layers. kInvalid: data were damaged. kCancelled: stop was requested. After an error the memory
  // is incomplete.
  virtual Result<std::int64_t> fetch(const StateKey& key, std::vector<StateRequest> requests,
                                     std::chrono::steady_clock::time_point deadline,
                                     std::stop_token stop) = 0;
};

}  // namespace weir::transport
