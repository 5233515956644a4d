// SPDX-License-Identifier: Apache-2.0
// Moves tensors between neighbouring stages. A Communicator is one generation of connections.
// Revision and incarnation are part of its handshakes and frames, so nothing of an older generation
// gets in. Implementations: tcp, nccl.
//
// Rules: messages are untagged and ordered per (peer, channel), and both sides post. Each posted
// receive grants the peer one credit, and a transfer starts only with a credit. So a late peer
// never looks like a slow network. Only wait() blocks: the calling thread may write a small message
// if the socket takes it at once; everything else is written in the background.
// A rank that ends its Communicator without a failure sends a goodbye. Its neighbours do not fail,
// but a send to it does. peer_left() tells a neighbour that still expects a message from it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "worker/base/result.h"
#include "worker/device/device.h"
#include "worker/transport/link_stats.h"

namespace weir::transport {

// A channel carries data in one direction: activations to the next stage, gradients to the previous
// one.
enum class Channel : unsigned char { kForward, kBackward };

// One end of one link and direction, as seen by this rank.
struct LinkEnd {
  int peer_stage = 0;
  Channel channel = Channel::kForward;
  bool sending = false;
  bool operator==(const LinkEnd&) const = default;
};

// While the link carried a message, by this rank's clock. Received: as busy_meter.h times it; equal
// times: it came in one piece. Sent: from when it had been handed over and had a credit, which
// counts messages before it that are still on their way, to its acknowledgement.
struct Transfer {
  std::chrono::steady_clock::time_point begin{}, end{};
};

// Result of wait(): an event of an op that was posted before.
struct Completion {
  enum class Kind : unsigned char {
    kReceived,  // the oldest posted receive of this link end is filled
    kSent,      // the peer has the oldest unacknowledged send completely; its window slot is free
    kFailed,  // the generation is broken (peer lost, protocol error); reason names the peer; final
  };
  Kind kind = Kind::kFailed;
  LinkEnd end;
  std::int64_t sequence = 0;  // counts per link end, from 0
  std::string reason;
  std::optional<Transfer> transfer = {};  // where the transport tells it
};

struct PeerAddress {
  int stage = 0;
  std::string ip;  // of its data port; IPv6 without brackets
  int data_port = 7071;
  std::string node;
};

std::string name_of(const PeerAddress& peer);  // "stage 1 at 10.0.0.7:7071"
std::string name_of(const LinkEnd& end);       // "link 0-1 forward"

// A generation as seen by one rank.
struct Generation {
  std::string job_uid;
  std::string job_key;  // raw bytes; proves membership in the handshake (HMAC over both nonces)
  std::uint32_t revision = 0;
  std::uint16_t incarnation = 0;
  int replica = 0;
  int stage = 0;
  std::string node;  // this rank's node, for labels
  std::optional<PeerAddress> previous, next;
};

struct LinkReport {
  int replica = 0;
  int boundary = 0;  // between stage b and b+1
  Channel channel = Channel::kForward;
  std::string from_node, to_node;
  LinkCounters counters;  // since the links were made; only directions in which this rank sends
};

// The engine thread uses it; any thread may call abort() and reports().
class Communicator {
 public:
  virtual ~Communicator() = default;  // aborts if needed and joins its threads

  // Only enqueues. The Buffer is held until the peer has received the last byte. `bytes` <=
  // buffer.size().
  virtual void send(const LinkEnd& end, device::Buffer buffer, std::size_t bytes) = 0;
  // Posts a slot and thereby grants one credit. The peer's next message on this link end must have
  // exactly `bytes`, else the generation fails.
  virtual void receive(const LinkEnd& end, device::Buffer buffer, std::size_t bytes) = 0;
  // Returns the next completion, or nothing at the deadline or after a stop request. After kFailed
  // every call returns kFailed.
  virtual std::optional<Completion> wait(std::chrono::steady_clock::time_point deadline,
                                         std::stop_token stop) = 0;
  // True if messages may be in device memory (Buffer::on_device), at both ends or at neither.
  // Otherwise all are in memory that the host can access.
  virtual bool carries_device_memory() const { return false; }
  // True if the peer has sent a goodbye. Its earlier messages have been received or will be by
  // wait(); no more will come.
  virtual bool peer_left(const LinkEnd& /*end*/) const { return false; }

  virtual std::vector<LinkReport> reports() const = 0;
  virtual void abort(const std::string& reason) noexcept = 0;
};

}  // namespace weir::transport
