// SPDX-License-Identifier: Apache-2.0
// Partial synchronisation (worker/coordinator/README.md "Sync rounds"): SYNC_READY in, GRANT to all
// ranks of the members out. worker/groups decides who averages with whom. No socket; time and
// members are arguments, messages are return values.
//
// Steps: after an average all members go on at the highest step of them, so that replicas stay
// within a few steps of each other and end together; a slow one does fewer of the steps, never the
// same twice. At a step that gather_at() has named all replicas meet: nobody goes beyond it before
// one average of everybody's whole state. There a checkpoint can be taken, a plan be changed.
//
// A member that does not come within the grant's deadline: the others go on without that average
// and say ROUND_FAILED. It is left out until it says SYNC_READY again. A replica of which a rank is
// gone is left out until the next generation.
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

  // The plan of the generation that trains, null while there is none; after each event that may
  // have changed it. Between COMMIT and GO of a new generation the rounds of the old one go on: its
  // ranks still have to come to the boundary.
  void follow(const schedule::Plan* plan);
  // All replicas shall stand at that step together. Too late when one may be beyond it already.
  void gather_at(std::int64_t step);

  // Ignored: repetitions, and what is not said by the last stage of that replica.
  Effects on_ready(int index, const protocol::SyncReady& ready, const Members& members,
                   SteadyTime now);
  void on_status(const protocol::StageStatus& status, SteadyTime now);
  Effects on_failed(int index, const protocol::RoundFailed& failed, const Members& members,
                    SteadyTime now);
  // Those replicas do not train any more; they are only ever more in one generation.
  Effects without(const std::set<int>& replicas, const Members& members, SteadyTime now);
  Effects tick(const Members& members, SteadyTime now);
  std::optional<SteadyTime> timer() const;  // when tick() is due at the latest

  // What the groups of this generation were like; nothing before the first.
  std::optional<protocol::SyncGroups> totals() const;
  std::int64_t reached() const { return reached_; }  // no rank is further than one step beyond

 private:
  struct Replica {
    std::int64_t step = 0;   // of its last SYNC_READY or GRANT
    std::int64_t local = 0;  // steps that it has done itself
    double progress = 0;     // its clock
    bool gone = false;
  };

  void begin(const schedule::Plan& plan);
  void came_to(std::int64_t step);
  // Is this worker the rank of that replica and stage (-1: of any)?
  bool runs(int index, int replica, int stage, const Members& members) const;
  double share_ratio(int replica) const;  // m_p / M
  Effects tell(const std::vector<groups::Grant>& grants, const Members& members);
  Replica& at(int replica) { return replicas_[static_cast<std::size_t>(replica)]; }

  const std::int64_t total_steps_;
  bool trains_ = false;                              // at the last follow()
  std::uint32_t revision_ = 0;                       // of the plan at the last follow()
  schedule::Plan plan_;                              // the Partial one; of scheduler_
  std::optional<groups::GroupScheduler> scheduler_;  // none: this generation was never Partial
  std::vector<Replica> replicas_;
  std::set<std::int64_t> meetings_;  // steps where all meet, all above reached_
  std::int64_t reached_ = 0;         // highest step that a rank has begun to stand at
  double told_contraction_ = 0;
  std::int64_t granted_ = 0, members_ = 0;  // groups, and their members in all
  std::int64_t told_failure_ = 0;           // the last failed round that was told
  double most_stale_ = 0;
};

}  // namespace weir::coordinator
