// SPDX-License-Identifier: Apache-2.0
// An engine that takes each letter at once, writes it down and answers. Thread-safe: the agent's
// thread puts letters, the test looks.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/worker/engine/letter_text.h"
#include "worker/control/agent.h"

namespace weir::test {

class RecordingEngine {
 public:
  // The agent must end before the engine.
  std::unique_ptr<control::Agent> start_agent(const control::AgentOptions& options,
                                              control::AgentCallbacks callbacks) {
    callbacks.put = [this](protocol::Message message) {
      if (const auto* wanted = std::get_if<protocol::StepsWanted>(&message)) {
        mailbox_.tell(protocol::Steps{
            .id = wanted->id,
            .octets = std::to_string(wanted->from) + "-" + std::to_string(wanted->to) + ";"});
        return true;
      }
      const bool known = mailbox_.put(std::move(message));
      take_letters();
      return known;
    };
    callbacks.session_lost = [this] {
      mailbox_.session_lost();
      take_letters();
    };
    callbacks.hello = [this](const protocol::Member& member) { return mailbox_.hello(member); };
    const std::lock_guard lock(agent_mutex_);
    auto agent = control::start_agent(options, std::move(callbacks));
    agent_ = agent.get();
    return agent;
  }
  void tell(const protocol::Message& message) { mailbox_.tell(message); }

  std::vector<std::string> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  bool called(const std::string& call) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::find(calls_, call) != calls_.end();
  }

  protocol::Measured measured;  // the answer to MEASURE
  std::string prepare_answer;   // set before use

 private:
  void take_letters() {
    while (const auto letter = mailbox_.take()) {
      {
        const std::lock_guard lock(mutex_);
        calls_.push_back(engine::test::text_of(*letter));
      }
      const bool prepares = std::holds_alternative<protocol::Prepare>(letter->message);
      if (std::holds_alternative<protocol::Measure>(letter->message)) {
        mailbox_.answer(*letter, measured);
      }
      if (engine::test::asks(*letter)) mailbox_.answer(*letter, prepares ? prepare_answer : "");
    }
  }

  mutable std::mutex mutex_;  // guards calls_
  std::vector<std::string> calls_;
  std::mutex agent_mutex_;  // guards agent_
  control::Agent* agent_ = nullptr;
  engine::Mailbox mailbox_{[this](const protocol::Message& message) {
    const std::lock_guard lock(agent_mutex_);
    agent_->send(message);
  }};
};

}  // namespace weir::test
