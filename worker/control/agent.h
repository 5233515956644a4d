// SPDX-License-Identifier: Apache-2.0
// The rank's end of port 7070: connects to the coordinator, proves the job key, says HELLO, passes
// PREPARE/COMMIT/GO/ABORT to the PlanTarget, runs MEASURE and PROBE requests, sends STATUS,
// PEER_LOST, LEAVE and heartbeats. Reconnects for ever with back-off (all addresses of the DNS
// name), so that survivors wait for a new coordinator. Own thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "worker/control/plan_target.h"
#include "worker/protocol/messages.h"

namespace weir::control {

struct AgentOptions {
  std::string coordinator;  // "gpt-gpu-0.gpt:7070" or "127.0.0.1:41001"
  std::string job_uid;
  protocol::Member member;              // of HELLO
  Settings settings;                    // likewise
  std::chrono::seconds dead_after{30};  // silence of the coordinator
  std::chrono::milliseconds heartbeat{1000};
};

struct AgentHooks {
  std::function<std::string()>
      job_key;  // raw; asked before each connection (a refused key: join again)
  // Times layers on scratch data; called on a thread of its own, answers with profile.json or an
  // error.
  std::function<protocol::Measured(const protocol::Measure&)> measure;
  std::function<protocol::Probed(const protocol::Probe&)> probe;  // likewise
  std::function<void(bool connected, const std::string& why)>
      on_connection;  // for logs and readiness
  // The coordinator will never take this rank; the agent does not connect again.
  std::function<void(const std::string& reason)> on_refused;
  // The agent ends and waits for the three above: they must return soon. Null: they do anyway.
  std::function<void()> stopping = nullptr;
};

class Agent {
 public:
  virtual ~Agent() = default;  // stops, joins
  virtual void send(
      const protocol::Message& message) = 0;  // STATUS, APPLIED, PEER_LOST, LEAVE; any thread;
                                              // dropped while not connected
  virtual bool connected() const = 0;
  // Why it is not connected, with the coordinator's address; "" while it is. Any thread.
  virtual std::string trouble() const = 0;
  // Waits until all sent messages have left or the deadline: for LEAVE at the end.
  virtual void flush(std::chrono::steady_clock::time_point deadline) = 0;
};

std::unique_ptr<Agent> start_agent(const AgentOptions& options, AgentHooks hooks,
                                   PlanTarget& target);

}  // namespace weir::control
