// SPDX-License-Identifier: Apache-2.0
// The rank's side of a plan switch as a state machine: messages of the coordinator in, calls of the
// PlanTarget and answers out. No socket, no clock. One thread (the agent's); answers of the target
// may come from any thread and are brought to that one by `post`.
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

  // PREPARE, COMMIT, GO, ABORT, PEER_LOST, LEAVE, SAVE, SAVED, GRANT. False: a message that a
  // coordinator does not send.
  bool on_message(const protocol::Message& message);
  // The session is gone: a prepared plan is forgotten, answers on the way are dropped.
  void on_disconnect();
  // What the engine says about itself: epoch and step of a STATUS go into the next HELLO.
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
  // An answer that does nothing once a newer PREPARE, ABORT or session has come.
  Answer answer(std::function<void(const std::string& reason)> then);

  PlanTarget& target_;
  Send send_;
  Post post_;
  std::optional<Prepared> prepared_;
  std::optional<schedule::Plan> current_;  // in force; empty until the first READY_STATE
  int incarnation_ = 0;
  std::int64_t step_ = 0;
  std::uint64_t turn_ = 0;  // counts PREPARE, ABORT and lost sessions
};

}  // namespace weir::control
