// SPDX-License-Identifier: Apache-2.0
// Partial synchronisation (worker/coordinator/README.md "Sync rounds"): SYNC_READY comes in, GRANT
// to all ranks of the members goes out. worker/groups decides which replicas average together. No
// socket: time and members are arguments, messages are return values.
//
// After an average, all members continue at their highest step. Replicas thus stay within a few
// steps of each other and end together; a slow replica skips steps but never repeats one. At a step
// named by gather_at() all replicas meet: none passes it before one average of all replicas' whole
// state. A checkpoint can be taken and a plan changed there.
//
// If a member does not come within the deadline of the grant, the others continue without that
// average and send ROUND_FAILED. The missing member is left out until its next SYNC_READY. A
// replica that has lost a rank is left out until the next generation.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker/base/clock.h"
#include "worker/coordinator/members.h"
#include "worker/coordinator/startup.h"
#include "worker/groups/group_scheduler.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::coordinator {

class SyncRounds {
 public:
  explicit SyncRounds(std::int64_t total_steps) : total_steps_(total_steps) {}

  struct Effects {
    Outgoing send;
    std::vector<std::string> warnings;
  };

  // Takes the plan of the generation that trains, or null if there is none. Call this after each
  // event that may have changed it. Between COMMIT and GO of a new generation the rounds of the old
  // one go on, because its ranks must still reach the boundary.
  void follow(const schedule::Plan* plan);
  // Makes all replicas meet at that step. It is too late if a replica may have passed the step.
  void gather_at(std::int64_t step);

  // Repetitions are ignored, and so are messages that do not come from the last stage of the
  // replica.
  Effects on_ready(int index, const protocol::SyncReady& ready, const Members& members,
                   SteadyTime now);
  void on_status(const protocol::StageStatus& status, SteadyTime now);
  Effects on_failed(int index, const protocol::RoundFailed& failed, const Members& members,
                    SteadyTime now);
  // These replicas have been lost. The set only grows within a generation.
  Effects without(const std::set<int>& replicas, const Members& members, SteadyTime now);
  Effects tick(const Members& members, SteadyTime now);
  std::optional<SteadyTime> timer() const;  // when tick() is due at the latest

  // Statistics of the groups of this generation; nothing before the first group.
  std::optional<protocol::SyncGroups> totals() const;
  std::int64_t reached() const { return reached_; }  // no rank is more than one step beyond this

 private:
  struct Replica {
    std::int64_t step = 0;   // of its last SYNC_READY or GRANT
    std::int64_t local = 0;  // steps that it has computed itself
    double progress = 0;     // its clock
    bool gone = false;
  };

  void begin(const schedule::Plan& plan);
  void came_to(std::int64_t step);
  // True if this worker is the rank of that replica and stage (-1: any stage).
  bool runs(int index, int replica, int stage, const Members& members) const;
  double share_ratio(int replica) const;  // m_p / M
  Effects tell(const std::vector<groups::FormedGroup>& grants, const Members& members);
  Replica& at(int replica) { return replicas_[static_cast<std::size_t>(replica)]; }

  const std::int64_t total_steps_;
  bool trains_ = false;                              // there was a plan at the last follow()
  std::uint32_t revision_ = 0;                       // of the plan at the last follow()
  schedule::Plan plan_;                              // the Partial plan of scheduler_
  std::optional<groups::GroupScheduler> scheduler_;  // null: this generation was never Partial
  std::vector<Replica> replicas_;
  std::set<std::int64_t> meetings_;  // steps at which all replicas meet; all are above reached_
  std::int64_t reached_ = 0;         // highest step that a rank has begun
  double reported_contraction_ = 0;
  std::int64_t granted_ = 0, members_ = 0;  // number of groups, and of their members in total
  std::int64_t reported_failure_ = 0;       // the last failed round for which a warning was given
  double most_stale_ = 0;
};

}  // namespace weir::coordinator
