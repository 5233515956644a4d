// SPDX-License-Identifier: Apache-2.0
// Who is there: the members of a job as their HELLO and STATUS describe them. No socket, no clock;
// the coordinator's thread only.
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
  // What its HELLO said, then what its STATUS says.
  std::uint32_t revision = 0;  // of the plan in force there; 0 = a fresh process without state
  int incarnation = 0;
  std::int64_t step = 0;                        // completed steps
  std::optional<protocol::StageStatus> status;  // the last one of this session
  bool finished = false;                        // LEAVE "finished": its end is no loss
  bool leaving = false;                         // any LEAVE

  bool connected() const { return session != 0; }
};

class Members {
 public:
  // Why this HELLO must be refused; empty = welcome. The newest pod uid wins for an index; a pod
  // that was displaced stays out.
  std::string refusal(const control::PeerId& proven, const protocol::Hello& hello) const;
  // Why this rank cannot train with worker 0, whatever it says later; empty = it can.
  static std::string disagreement(const Settings& worker_0, const protocol::Hello& hello);
  // Only when welcome; an older session of that index has been closed() before.
  void hello(control::SessionId session, const protocol::Hello& hello, SteadyTime now);
  // The index whose session this was; nothing when it has another session or is unknown.
  std::optional<int> closed(control::SessionId session);
  void status(int index, const protocol::StageStatus& status);
  void leave(int index, const std::string& reason);
  // It has built the stage of a new generation and holds that state, or could not and holds none.
  void ready_state(int index, const protocol::ReadyState& ready);

  const MemberState* find(int index) const;
  const MemberState* by_pod(const std::string& pod) const;
  std::optional<int> index_of(control::SessionId session) const;
  const std::map<int, MemberState>& all() const { return members_; }

  bool complete(int workers) const;  // that many indexes have come, connected or not
  SteadyTime last_change() const { return last_change_; }
  // Counts changes that /register must tell: pods, addresses, devices.
  std::uint64_t version() const { return version_; }

 private:
  std::map<int, MemberState> members_;
  std::set<std::string> displaced_;  // pod uids; grows by one per replaced pod
  SteadyTime last_change_{};
  std::uint64_t version_ = 0;
};

}  // namespace weir::coordinator
