// SPDX-License-Identifier: Apache-2.0
// The members of a job, as their HELLO and STATUS describe them. No socket, no clock. Used only on
// the coordinator's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "worker/base/clock.h"
#include "worker/control/link.h"
#include "worker/protocol/messages.h"

namespace weir::coordinator {

struct MemberState {
  protocol::Member member;
  control::SessionId session = 0;  // 0 = not connected
  // From its HELLO, then from its STATUS.
  std::uint32_t revision = 0;  // of its plan in force; 0 = a new process without state
  int incarnation = 0;
  std::int64_t step = 0;                        // completed steps
  protocol::Inventory inventory;                // the last that it told
  std::uint64_t told = 0;                       // counts the inventories that it told
  std::optional<protocol::StageStatus> status;  // the last STATUS of this session
  // The time of one of its steps that was not cut short by an interruption; 0 = unknown.
  double step_seconds = 0;
  bool tells_steps = false;  // it answers STEPS_WANTED
  bool keeps_sums = false;   // it understands Commit::kept
  bool finished = false;     // has sent LEAVE "finished": its disconnection is no failure
  // Since then nothing came, and for that its session has ended; nothing after other ends.
  std::optional<SteadyTime> silent_since;
  bool leaving = false;  // has sent a LEAVE

  bool connected() const { return session != 0; }
};

class Members {
 public:
  // Returns why this HELLO must be refused, or "" if it is accepted. For each index the pod that
  // has come last wins, and the one that it displaces stays out while it is connected: a process
  // that stood still may come after the pod that is to replace it, and ends later. One that leaves
  // is not displaced: until it has gone, which its grace bounds, the newer one must try again, or
  // steps that the leaving one holds were lost. Nor does one that leaves displace another.
  std::string refusal(const control::PeerId& proven, const protocol::Hello& hello) const;
  // Returns why this rank can never train with worker 0, or "" if it can.
  static std::string disagreement(const Settings& worker_0, const protocol::Hello& hello);
  // Call this only for an accepted HELLO, after closed() for an older session of the index.
  void hello(control::SessionId session, const protocol::Hello& hello, SteadyTime now);
  // Returns the index of the session; nothing if its index has another session or is unknown.
  std::optional<int> closed(control::SessionId session,
                            std::optional<SteadyTime> silent_since = std::nullopt);
  void status(int index, const protocol::StageStatus& status);
  void inventory(int index, const protocol::Inventory& inventory);
  void leave(int index, const std::string& reason);
  // The rank has built the stage of a new generation and holds the state named by `ready`, or
  // failed; then it may hold its state all the same.
  void ready_state(int index, const protocol::ReadyState& ready);

  const MemberState* find(int index) const;
  const MemberState* by_pod(const std::string& pod) const;
  std::optional<int> index_of(control::SessionId session) const;
  const std::map<int, MemberState>& all() const { return members_; }

  // True if this many indexes but those of spares have come, connected or not.
  bool complete(int workers) const;
  SteadyTime last_change() const { return last_change_; }
  // Counts changes that require a new /register: pods, addresses, devices.
  std::uint64_t version() const { return version_; }

 private:
  std::map<int, MemberState> members_;
  std::set<std::string> displaced_;  // pod uids; grows by one per replaced pod
  SteadyTime last_change_{};
  std::uint64_t version_ = 0;
};

// The longest last step of the plan's ranks, connected or not; 0 if it is unknown for one of them.
std::chrono::nanoseconds longest_step(const schedule::Plan& plan, const Members& members);

// The rank says "too late" of a step that it has not passed: its generation has just broken, and it
// says so itself once it has waited for a plan. Each further order would get this answer at once.
inline bool does_not_train(const protocol::Saved& saved) {
  return saved.late && saved.at <= saved.step;
}

}  // namespace weir::coordinator
