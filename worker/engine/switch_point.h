// SPDX-License-Identifier: Apache-2.0
// Where plans enter the engine. Calls of the control thread only leave a command; the engine thread
// takes it between two ops, decides and answers. The app connects this class to
// control::PlanTarget, which has the same verbs.
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

// Called exactly once, from the engine thread. An empty reason means success.
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
  std::vector<int> replicas;  // replicas that divide the layers; empty: all
};
struct SavedCommand {
  std::int64_t step = 0;
  std::string error;
  bool leave = false;
};
// Partial only: the replicas to average with after a step.
struct Grant {
  std::int64_t round = 0;
  std::int64_t step = 0;       // completed steps, including that step
  std::int64_t next_step = 0;  // after the average
  std::vector<int> members;    // replicas in rising order
  std::vector<double> weights;
  bool all = false;       // all replicas average their whole state and are bit-equal afterwards
  bool overlaps = false;  // the average may run during the next step, until its update
  double staleness = 0;
  double node_bytes_per_second = 0;
  std::chrono::nanoseconds deadline{0};  // for the members to begin; 0 = the progress deadline
};
using Command = std::variant<PrepareCommand, CommitCommand, GoCommand, AbortCommand,
                             PeerLostCommand, FinishedCommand, SaveCommand, SavedCommand, Grant>;

class SwitchPoint {
 public:
  // Any thread; these calls do not block. If too many commands wait, the answer is a reason at
  // once.
  void prepare(schedule::Plan plan, int incarnation, Answer answer);
  void commit(std::uint32_t revision, std::int64_t at_step, Answer answer);
  void go(std::uint32_t revision);
  void abort(std::uint32_t revision);
  void peer_lost(std::string reason);  // from the coordinator: the generation is broken
  void finished();                     // the ranks of the plan have done their last step
  // Saves the state after `step` steps, once this rank has reached it. `replicas` divide the
  // layers; empty: all of the plan.
  void save(std::int64_t step, std::vector<int> replicas = {});
  // The checkpoint of the step is complete or has failed. If `leave` is set, a rank that waits for
  // it may leave.
  void saved(std::int64_t step, std::string error, bool leave);

  void grant(Grant grant);  // never dropped: the newest grant always finds room

  // Ends connecting that is under way.
  void interrupt_connecting();

  // Engine thread: returns the oldest command, or nothing if there is none (until the deadline).
  std::optional<Command> take();
  std::optional<Command> wait(std::chrono::steady_clock::time_point deadline, std::stop_token stop);
  // Returns a source that the next prepare or abort stops, including one that waits already: the
  // engine would connect for a plan that is out of date.
  std::stop_source begin_connecting();

 private:
  static constexpr std::size_t kMostCommands = 64;  // a coordinator makes one switch at a time

  std::optional<Command> taken(std::optional<Command> command);
  std::optional<Command> kept();
  bool push_interrupting(Command command);

  BoundedQueue<Command> commands_{kMostCommands};
  std::mutex connecting_mutex_;  // guards connecting_ and interrupting_
  std::stop_source connecting_{std::nostopstate};
  int interrupting_ = 0;             // prepares and aborts that wait in commands_
  std::mutex kept_mutex_;            // guards kept_grant_
  std::optional<Grant> kept_grant_;  // a grant that came while commands_ was full
};

}  // namespace weir::engine
