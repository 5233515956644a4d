// SPDX-License-Identifier: Apache-2.0
// Where plans enter the engine. The control thread's calls only leave a command; the engine thread
// takes it between two ops, decides and answers. The app joins this to control::PlanTarget, whose
// verbs these are.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <variant>
#include <vector>

#include "worker/base/bounded_queue.h"
#include "worker/schedule/plan.h"

namespace weir::engine {

// Called exactly once, from the engine thread. Empty reason = yes.
using Answer = std::function<void(std::string reason)>;

struct PrepareCommand {
  schedule::Plan plan;
  int incarnation = 0;
  Answer answer;
};
struct CommitCommand {
  std::uint32_t revision = 0;
  std::int64_t at_step = 0;
  Answer answer;
};
struct GoCommand {
  std::uint32_t revision = 0;
};
struct AbortCommand {
  std::uint32_t revision = 0;
};
struct PeerLostCommand {
  std::string reason;
};
struct FinishedCommand {};
struct SaveCommand {
  std::int64_t step = 0;
  std::vector<int> replicas;  // that share the layers; empty: all
};
struct SavedCommand {
  std::int64_t step = 0;
  std::string error;
  bool leave = false;
};
// Partial: with whom this replica averages after a step.
struct Grant {
  std::int64_t round = 0;
  std::int64_t step = 0;       // completed steps, that one counted
  std::int64_t next_step = 0;  // after the average
  std::vector<int> members;    // replicas in rising order
  std::vector<double> weights;
  bool all = false;       // of all replicas and all of the state: equal in all bits afterwards
  bool overlaps = false;  // it may go on beside the next step, until that one's update
  double staleness = 0;
  double port_bytes_per_second = 0;
  std::chrono::nanoseconds deadline{0};  // for its members to come; 0: the progress deadline
};
using Command = std::variant<PrepareCommand, CommitCommand, GoCommand, AbortCommand,
                             PeerLostCommand, FinishedCommand, SaveCommand, SavedCommand, Grant>;

class SwitchPoint {
 public:
  // Any thread; never block. Answered with a reason at once when too many commands wait.
  void prepare(schedule::Plan plan, int incarnation, Answer answer);
  void commit(std::uint32_t revision, std::int64_t at_step, Answer answer);
  void go(std::uint32_t revision);
  void abort(std::uint32_t revision);
  void peer_lost(std::string reason);  // the coordinator says that the generation is broken
  void finished();                     // the ranks of the plan have done their last step
  // The state after so many steps, once this rank has it; its part of the layers, as those replicas
  // share them (empty: all of the plan).
  void save(std::int64_t step, std::vector<int> replicas = {});
  // The checkpoint of that step is complete, or has failed; leave: who waits for it to leave, may.
  void saved(std::int64_t step, std::string error, bool leave);

  void grant(Grant grant);  // the last one never finds no room

  // Ends the connecting under way, if any.
  void interrupt_connecting();

  // Engine thread. The oldest command; nothing if there is none (until the deadline).
  std::optional<Command> take();
  std::optional<Command> wait(std::chrono::steady_clock::time_point deadline, std::stop_token stop);
  // A source that the next prepare or abort stops, one that is already waiting included: what the
  // engine connects for is then out of date.
  std::stop_source begin_connecting();

 private:
  static constexpr std::size_t kMostCommands = 64;  // a coordinator has one switch at a time

  std::optional<Command> taken(std::optional<Command> command);
  std::optional<Command> kept();
  bool push_interrupting(Command command);

  BoundedQueue<Command> commands_{kMostCommands};
  std::mutex connecting_mutex_;  // guards the two below
  std::stop_source connecting_{std::nostopstate};
  int interrupting_ = 0;             // prepares and aborts that wait in commands_
  std::mutex kept_mutex_;            // guards kept_grant_
  std::optional<Grant> kept_grant_;  // came when commands_ was full
};

}  // namespace weir::engine
