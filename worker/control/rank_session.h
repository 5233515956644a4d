// SPDX-License-Identifier: Apache-2.0
// The rank's side of a plan switch as a state machine: coordinator messages go in; calls of the
// PlanTarget and answers come out. No socket, no clock. Runs on one thread, the agent's. Answers of
// the target may come from any thread; `post` brings them to the agent's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "worker/control/plan_target.h"
#include "worker/protocol/messages.h"

namespace weir::control {

class RankSession : public std::enable_shared_from_this<RankSession> {
 public:
  using Send = std::function<void(const protocol::Message&)>;
  using Post = std::function<void(std::function<void()>)>;

  RankSession(PlanTarget& target, Send send, Post post)
      : target_(target), send_(std::move(send)), post_(std::move(post)) {}

  // Takes PREPARE, COMMIT, GO, ABORT, PEER_LOST, LEAVE, SAVE, SAVED and GRANT. Returns false for a
  // message that a coordinator does not send.
  bool on_message(const protocol::Message& message);
  // The session is lost: forgets a prepared plan and drops pending answers.
  void on_disconnect();
  // Takes epoch and step from a STATUS of the engine, for the next HELLO.
  void on_status(const protocol::StageStatus& status);
  protocol::Hello hello(const protocol::Member& member, const Settings& settings = {}) const;

 private:
  struct Prepared {
    schedule::Plan plan;
    int incarnation = 0;
    bool committed = false;
  };

  void prepare(const protocol::Prepare& message);
  void commit(const protocol::Commit& message);
  void committed(const protocol::Commit& message, bool new_generation, const std::string& reason);
  // Wraps an answer that does nothing after a newer PREPARE, ABORT or session.
  Answer answer(std::function<void(const std::string& reason)> then);

  PlanTarget& target_;
  Send send_;
  Post post_;
  std::optional<Prepared> prepared_;
  std::optional<schedule::Plan> current_;  // the plan in force; empty until the first READY_STATE
  int incarnation_ = 0;
  std::int64_t step_ = 0;
  std::uint64_t turn_ = 0;  // counts PREPAREs, ABORTs and lost sessions
};

}  // namespace weir::control
