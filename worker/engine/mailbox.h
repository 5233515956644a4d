// SPDX-License-Identifier: Apache-2.0
// Between the control thread, which brings the coordinator's messages, and the engine thread, which
// acts on them and answers (worker/coordinator/README.md "Plan switch"). Also knows what this rank
// tells in its next HELLO. The app connects this class to the rank's end of port 7070.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "worker/base/bounded_queue.h"
#include "worker/base/clock.h"
#include "worker/protocol/messages.h"

namespace weir::engine {

struct Letter {
  protocol::Message message;
  std::uint64_t turn = 0;  // of the mailbox when the message came
};

class Mailbox {
 public:
  // Sends a message to the coordinator. Called by any thread, and while the mailbox is locked: it
  // must not block, and must take no lock that is held during a call of the mailbox. It may call
  // put(). Null: nothing is sent.
  using Send = std::function<void(const protocol::Message&)>;
  explicit Mailbox(Send send) : send_(std::move(send)) {}

  // Control thread; these calls do not block. put: takes PREPARE, COMMIT, GO, ABORT, PEER_LOST,
  // LEAVE, SAVE, SAVED, GRANT and MEASURE. Returns false for a message that a coordinator does not
  // send. If too many letters wait, PREPARE and COMMIT are answered with a reason at once. The
  // newest GRANT always finds room. The others are dropped, which is harmless: waits for GO have a
  // deadline, the links tell of a lost peer, and a save that is not answered is followed by the
  // next round.
  bool put(protocol::Message message);
  // The session has ended: forgets a plan that is not committed, drops answers to come, and ends
  // connecting or measuring that is under way.
  void session_lost();
  // Names the plan in force and the completed steps. The settings are left empty.
  protocol::Hello hello(const protocol::Member& member) const;

  // Any thread. How many letters have come, and how many of them the engine thread has taken.
  struct Reading {
    std::uint64_t put = 0, taken = 0;
  };
  Reading reading() const { return {.put = put_.load(), .taken = taken_.load()}; }

  // Engine thread. Returns the oldest letter, or nothing if there is none (wait: until the
  // deadline).
  std::optional<Letter> take();
  std::optional<Letter> wait(SteadyTime deadline, std::stop_token stop);
  // Answers a PREPARE or COMMIT, each exactly once; an empty reason means success. Does nothing if
  // a newer PREPARE or ABORT has come or the session has ended. held: with a reason against a
  // COMMIT, the completed steps of the rank's layers of that plan if it holds them.
  void answer(const Letter& letter, const std::string& reason = "",
              std::optional<std::int64_t> held = std::nullopt);
  // The answer to a MEASURE. It is not sent in the cases above.
  void answer(const Letter& letter, const protocol::Measured& measured);
  // Returns a source that the next PREPARE or ABORT stops, including one that waits already, and
  // the end of the session: the engine would connect, or measure, for a plan that is out of date.
  std::stop_source begin_connecting();
  std::stop_source begin_measuring();

  // Any thread. Sends a message; takes epoch and step from a STATUS, and an INVENTORY, for the next
  // HELLO.
  void tell(const protocol::Message& message);
  // Letter::turn of what comes now. Another one than that of a COMMIT: its GO will not come.
  std::uint64_t turn() const;
  void interrupt_connecting();  // ends connecting or measuring that is under way
  void interrupt_measuring();   // measuring alone

 private:
  static constexpr std::size_t kMostLetters = 64;  // a coordinator makes one switch at a time

  struct Prepared {
    schedule::Plan plan;
    int incarnation = 0;
    bool committed = false, new_generation = false;
  };

  void prepare(protocol::Prepare message);
  void commit(const protocol::Commit& message);
  void abort_uncommitted();
  void grant(protocol::Grant message);
  bool push(protocol::Message message);
  bool push_interrupting(protocol::Message message);
  void reply(const protocol::Message& message, const std::string& reason,
             std::optional<std::int64_t> held = std::nullopt);
  void committed(const protocol::Commit& message, const std::string& reason,
                 std::optional<std::int64_t> held);
  void send(const protocol::Message& message) const {
    if (send_) send_(message);
  }
  std::optional<Letter> taken(std::optional<Letter> letter);
  std::optional<Letter> kept();

  const Send send_;
  BoundedQueue<Letter> letters_{kMostLetters};
  std::atomic<std::uint64_t> put_{0}, taken_{0};
  // Guards all below. It is held while an answer is sent; otherwise the session could end in
  // between, and the next one would get that answer. Recursive, because a worker that plans for
  // itself puts its next message from within `send_`.
  mutable std::recursive_mutex mutex_;
  std::optional<Prepared> prepared_;
  std::optional<schedule::Plan> current_;  // the plan in force; empty until the first READY_STATE
  int incarnation_ = 0;
  std::int64_t step_ = 0;
  protocol::Inventory inventory_;  // the last that was told; `running` since a GO after it
  std::uint64_t turn_ = 0;         // counts PREPAREs, ABORTs and lost sessions, as they come
  std::stop_source connecting_{std::nostopstate};
  bool measures_ = false;                      // rather than connects
  int interrupting_ = 0;                       // PREPAREs and ABORTs that wait in letters_
  std::optional<protocol::Grant> kept_grant_;  // a grant that came while letters_ was full
};

}  // namespace weir::engine
