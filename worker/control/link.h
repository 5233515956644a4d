// SPDX-License-Identifier: Apache-2.0
// The coordinator's end of port 7070. It accepts ranks that prove the job key (wire/door.h),
// carries messages as frames (u32 length, big endian, then JSON), sends heartbeats and drops silent
// peers. The server owns one thread. All events come from it, so the coordinator's state needs no
// lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "worker/base/result.h"
#include "worker/control/peer_id.h"
#include "worker/protocol/messages.h"

namespace weir::control {

// A plan of 4096 ranks has 0.6 MB; a profile of 64 layers is far smaller.
constexpr std::size_t kMaxFrame = std::size_t{4} * 1024 * 1024;

using SessionId = std::uint64_t;  // from 1, never reused

struct RankServerOptions {
  std::string listen_ip;  // "" = all addresses, IPv4 and IPv6
  int port = 0;           // 0 = any free port
  std::string job_uid;
  std::string job_key;                        // raw bytes
  std::chrono::milliseconds heartbeat{1000};  // interval of this end's heartbeats
  // A session without a byte for this long is closed. A pause of this process does not count.
  std::chrono::milliseconds dead_after{30000};
  std::chrono::milliseconds tick{100};
  // From accept to the proof of the key; half of it for each step.
  std::chrono::milliseconds handshake_time{10000};
};

// All are called on the server's thread and must not block.
struct RankServerEvents {
  std::function<void(SessionId, const PeerId&, protocol::Message)> on_message;
  // An authenticated session is gone: the peer closed it, was silent or sent a bad message.
  // unheard: since the last byte; pauses of this process do not count. Not called after close().
  std::function<void(SessionId, const std::string& reason, std::chrono::nanoseconds unheard)>
      on_closed;
  std::function<void()> on_tick;
};

class RankServer {
 public:
  virtual ~RankServer() = default;  // stops and joins its thread; no event comes afterwards
  virtual int port() const = 0;
  virtual void start() = 0;  // call once; no event comes earlier
  // Runs `work` on the server's thread; any thread may call.
  virtual void post(std::function<void()> work) = 0;
  // Call only on the server's thread. A session that has just gone is ignored.
  virtual void send(SessionId session, const protocol::Message& message) = 0;
  virtual void close(SessionId session, const std::string& reason) = 0;
  // Adds one on_tick at that time. The latest call replaces earlier ones.
  virtual void wake_at(std::chrono::steady_clock::time_point time) = 0;
};

// Listens; connections wait until start(). The error is kUnavailable, e.g. "control port 7070:
// address already in use".
Result<std::unique_ptr<RankServer>> make_rank_server(const RankServerOptions& options,
                                                     RankServerEvents events);

}  // namespace weir::control
