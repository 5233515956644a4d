// SPDX-License-Identifier: Apache-2.0
// The rank's end of port 7070. It connects to the coordinator, proves the job key and sends HELLO.
// It runs MEASURE and PROBE requests, sends heartbeats, and passes other messages on: it knows no
// plans. After a failure it tries all addresses of the DNS name with back-off and without end, so
// that surviving ranks wait for a new coordinator. Meanwhile, or while it hears nothing, it asks
// who coordinates now. Has a thread of its own.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/protocol/messages.h"

namespace weir::control {

struct AgentOptions {
  std::string coordinator;  // "gpt-gpu-0.gpt:7070" or "127.0.0.1:41001"
  std::string job_uid;
  protocol::Member member;                 // for HELLO
  Settings settings;                       // for HELLO
  std::vector<std::string> features = {};  // for HELLO
  // After this long without a byte from the coordinator, the agent reconnects.
  std::chrono::seconds dead_after{30};
  std::chrono::milliseconds heartbeat{1000};
  // After this long without a byte it asks who coordinates. A pause of this process does not count.
  std::chrono::milliseconds silent_after{30000};
  // Also after this long without a connection, in which a container may restart in its pod.
  std::chrono::milliseconds unconnected_after{4000};
  std::chrono::milliseconds ask_every{1000};  // while it finds no coordinator
};

struct AgentCallbacks {
  // The mailbox of this rank. Called on the agent's thread; must not block. put: a message that the
  // agent does not answer itself; false if no coordinator sends it.
  std::function<bool(protocol::Message)> put;
  std::function<void()> session_lost;
  std::function<protocol::Hello(const protocol::Member&)> hello;  // without the settings
  // Raw bytes; called before each connection, because a refused key must be asked for again.
  std::function<std::string()> job_key;
  std::function<protocol::Probed(const protocol::Probe&)> probe;  // called on a thread of its own
  // Finds the coordinator's address anew; "" = nothing is known that differs. Called on the thread
  // of probe; may be null.
  std::function<std::string()> find_coordinator = nullptr;
  // True: find_coordinator is to be called, whatever this agent hears. May be null. Must not block.
  std::function<bool()> doubts = nullptr;
  // For logs and readiness.
  std::function<void(bool connected, const std::string& why)> on_connection;
  // The coordinator will never accept this rank; the agent does not connect again.
  std::function<void(const std::string& reason)> on_refused;
  // Called when the agent stops: the calls of job_key and probe must return soon. May be null if
  // they do so anyway.
  std::function<void()> stopping = nullptr;
};

class Agent {
 public:
  virtual ~Agent() = default;  // stops and joins its threads
  // Any thread; the message is dropped if the agent is not connected.
  virtual void send(const protocol::Message& message) = 0;
  virtual bool connected() const = 0;
  // Why the agent is not connected, with the coordinator's address; "" if it is connected. Any
  // thread.
  virtual std::string trouble() const = 0;
  // Waits until all messages have been written, or until the deadline. Used for LEAVE at the end.
  virtual void flush(std::chrono::steady_clock::time_point deadline) = 0;
};

std::unique_ptr<Agent> start_agent(const AgentOptions& options, AgentCallbacks callbacks);

}  // namespace weir::control
