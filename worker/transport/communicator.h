// SPDX-License-Identifier: Apache-2.0
// Moves tensors between neighbouring stages. One Communicator = one generation of connections;
// revision and incarnation are in its handshakes and frames, so that nothing of an older generation
// enters. Implementations: tcp, nccl.
//
// Rules: untagged, ordered per (peer, channel), both sides post. Each posted receive grants the
// peer one credit; a transfer starts only with a credit, so a late peer never looks like a slow
// network. No call but wait() ever blocks: a small message may be written by the calling thread if
// the socket takes it at once, all else is written behind its back.
// A rank that ends its Communicator without a failure says goodbye: its neighbours do not fail, but
// a send to it does, and peer_left() tells those who still await something from it.
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

// A channel carries data one way only: activations to the next stage, gradients to the one before.
enum class Channel : unsigned char { kForward, kBackward };

// One end of one link direction, as this rank sees it.
struct Port {
  int peer_stage = 0;
  Channel channel = Channel::kForward;
  bool sending = false;
  bool operator==(const Port&) const = default;
};

// What wait() returns: something happened to an op that was posted before.
struct Completion {
  enum class Kind : unsigned char {
    kReceived,  // the oldest posted receive of this port is filled
    kSent,  // the peer has the last byte of the oldest unacknowledged send: its window slot is free
    kFailed,  // the generation is broken (peer lost, protocol error): reason says which peer and
              // why; final
  };
  Kind kind = Kind::kFailed;
  Port port;
  std::int64_t sequence = 0;  // counts per port from 0
  std::string reason;
};

struct PeerAddress {
  int stage = 0;
  std::string ip;  // of its data port; IPv6 without brackets
  int data_port = 7071;
  std::string node;
};

std::string name_of(const PeerAddress& peer);  // "stage 1 at 10.0.0.7:7071"

// A generation as one rank sees it.
struct Generation {
  std::string job_uid;
  std::string job_key;  // raw bytes; proves membership in the handshake (HMAC over both nonces)
  std::uint32_t revision = 0;
  std::uint16_t incarnation = 0;
  int replica = 0;
  int stage = 0;
  std::string node;  // own, for labels
  std::optional<PeerAddress> previous, next;
};

struct LinkReport {
  int replica = 0;
  int boundary = 0;  // between stage b and b+1
  Channel channel = Channel::kForward;
  std::string from_node, to_node;
  LinkCounters counters;  // since the links object was made; only directions that this rank sends
};

// Driven by the engine thread; abort() and reports() from any thread.
class Communicator {
 public:
  virtual ~Communicator() = default;  // aborts if needed, joins its threads, never throws

  // Enqueues only. The Buffer is held until the peer has the last byte. `bytes` <= buffer.size().
  virtual void send(const Port& port, device::Buffer buffer, std::size_t bytes) = 0;
  // Posts a slot = grants one credit. The peer's next message on this port must have exactly
  // `bytes`, else the generation fails.
  virtual void receive(const Port& port, device::Buffer buffer, std::size_t bytes) = 0;
  // The next completion; nothing on deadline or stop. After kFailed every call returns kFailed
  // again.
  virtual std::optional<Completion> wait(std::chrono::steady_clock::time_point deadline,
                                         std::stop_token stop) = 0;
  // Messages may lie in device memory (Buffer::on_device), at both ends or at none. Else all lie in
  // memory that the host reaches.
  virtual bool carries_device_memory() const { return false; }
  // The peer of this port has said goodbye. What it sent before is received, or will be by wait();
  // nothing more comes.
  virtual bool peer_left(const Port& /*port*/) const { return false; }

  virtual std::vector<LinkReport> reports() const = 0;
  virtual void abort(const std::string& reason) noexcept = 0;
};

}  // namespace weir::transport
