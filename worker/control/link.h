// SPDX-License-Identifier: Apache-2.0
// The coordinator's end of port 7070: accepts ranks, checks their handshake, carries messages as
// frames (u32 length, big endian, then JSON), sends heartbeats and drops silent peers. One thread
// owned by the server; all events come from it, so the coordinator's state needs no lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "worker/base/result.h"
#include "worker/control/handshake.h"
#include "worker/protocol/messages.h"

namespace weir::control {

// A plan of 4096 ranks is 0.6 MB, a profile of 64 layers far less.
constexpr std::size_t kMaxFrame = std::size_t{4} * 1024 * 1024;

using SessionId = std::uint64_t;  // from 1, never used twice

struct ServerOptions {
  std::string listen_ip;  // "" = all, IPv4 and IPv6
  int port = 0;           // 0 = any free one
  std::string job_uid;
  std::string job_key;                          // raw
  std::chrono::milliseconds heartbeat{1000};    // between two of this end
  std::chrono::milliseconds dead_after{30000};  // without any byte of an authenticated peer
  std::chrono::milliseconds tick{100};
  std::chrono::milliseconds handshake_time{10000};  // from accept to a proven key
};

// All from the server's thread; must not block.
struct ServerEvents {
  std::function<void(SessionId, const PeerId&, protocol::Message)> on_message;
  // An authenticated session is gone: closed by the peer, silent, hostile. Not after close().
  std::function<void(SessionId, const std::string& reason)> on_closed;
  std::function<void()> on_tick;
};

class Server {
 public:
  virtual ~Server() = default;  // stops, joins; no event afterwards
  virtual int port() const = 0;
  virtual void start() = 0;                           // once; no event before
  virtual void post(std::function<void()> work) = 0;  // runs on the server's thread; any thread
  // Only from the server's thread. An unknown session is ignored: it has just gone.
  virtual void send(SessionId session, const protocol::Message& message) = 0;
  virtual void close(SessionId session, const std::string& reason) = 0;
  // One more on_tick, at that time; the latest call counts.
  virtual void wake_at(std::chrono::steady_clock::time_point time) = 0;
};

// kUnavailable "control port 7070: address already in use".
// Listens; connections wait until start().
Result<std::unique_ptr<Server>> make_server(const ServerOptions& options, ServerEvents events);

}  // namespace weir::control
