// SPDX-License-Identifier: Apache-2.0
// Decides of which step all ranks take a snapshot (worker/engine/README.md "Snapshots"). A round is
// SAVE to all ranks and SAVED from all ranks; the same again with the address of the rank whose
// snapshot the receiver copies (neighbors.h); and SAVED to all, by which older snapshots and copies
// go, or those of this step if a rank lacks one. One round at a time. Rounds lie so far apart that
// they cost 1 % of the time at most. A round that fails costs its snapshots, never a step, and the
// next one comes later. No socket: time and members are arguments, messages are return values.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker/base/clock.h"
#include "worker/coordinator/checkpoints.h"
#include "worker/coordinator/members.h"
#include "worker/coordinator/startup.h"
#include "worker/schedule/neighbors.h"
#include "worker/schedule/plan.h"

namespace weir::coordinator {

class SnapshotRounds {
 public:
  SnapshotRounds(const SnapshotPolicy& policy, std::int64_t total_steps)
      : policy_(policy), total_steps_(total_steps), interval_(policy.every_steps) {}

  struct Effects {
    Outgoing send;
    std::vector<std::string> notes, warnings;
  };
  // plan: the one that trains, null if there is none. With several replicas each layer is held by
  // several ranks, so none takes snapshots. Call this after any change and on each tick.
  Effects advance(const schedule::Plan* plan, const Members& members, SteadyTime now);
  Effects on_saved(int index, const protocol::Saved& saved, const Members& members);
  const std::string& state() const { return state_; }  // protocol::Report::snapshots

 private:
  struct Round {
    std::int64_t step = 0;
    std::set<int> waiting;
    std::set<control::SessionId> leaving;  // may end when the round has ended
    SteadyTime opened{};
    double seconds = 0;    // the longest of all ranks
    bool soon = false;     // of the next step, for ranks that leave
    bool copying = false;  // all have their snapshots
    double copy_seconds = 0;
    std::string not_copied;                     // why, once all have their snapshots only
    std::vector<int> keeper;                    // by stage: of its copy, -1 for none
    std::set<int> failed;                       // keepers that could not
    std::map<int, std::deque<int>> copies;      // by keeper: the stages of copies to come
    std::vector<protocol::CopySource> sources;  // by stage
    std::vector<int> workers;                   // by stage
  };

  // After a failure a round may have been left half done, by a coordinator that has died, too.
  // Keeps the newest set that is whole, if possible with its copies, so that the next round cannot
  // take the place of the only one.
  void settle(const schedule::Plan& plan, const Members& members, Effects& effects);
  // A round of the next step that can be had, if `soon`, else of the next multiple of the interval.
  void open(const schedule::Plan& plan, const Members& members, SteadyTime now, bool soon,
            Effects& effects);
  // Ranks that leave go on until copies of a step are whole, and do not begin the next one. So no
  // step is done again. The round begins a moment after the first LEAVE: ranks of one node leave
  // together, and a copy at one that leaves, too, is none. If all leave, nobody would keep them.
  void serve_leaving_ranks(const schedule::Plan& plan, const Members& members, SteadyTime now,
                           Effects& effects);
  // The step of a round that is opened now, as soon as ranks can take their snapshots.
  std::int64_t soonest(const schedule::Plan& plan, const Members& members) const;
  // Workers that leave and have a stage, until their round has ended.
  std::vector<int> unserved(const schedule::Plan& plan, const Members& members) const;
  // Orders the copies of the round; returns false if none are wanted.
  bool order_copies(const Members& members, Effects& effects);
  void order_next_copy(int keeper, Effects& effects);
  bool copied(int index, Effects& effects);  // true if this worker has no further one to make
  int stage_of(int index) const;
  std::set<int> stages_that_leave(const Members& members) const;
  // A keeper has said LEAVE since the copies were ordered.
  bool a_copy_leaves(const Members& members) const;
  // Another keeper takes its copies. Returns false if there is none.
  bool replace_keeper(int index, const Members& members, Effects& effects);
  void on_copy_failed(int index, const protocol::Saved& saved, const Members& members,
                      Effects& effects);
  void whole(const Members& members, Effects& effects);
  void pace(const Members& members);
  // Ends the round; an error means that not all ranks have the snapshot. again: another round
  // follows at once, for which ranks that leave wait, too.
  void close(const std::string& error, const Members& members, Effects& effects,
             bool again = false);
  // The same for an error that is likely to come again.
  void fail(const std::string& error, const Members& members, Effects& effects);

  const SnapshotPolicy policy_;
  const std::int64_t total_steps_;
  std::int64_t interval_;  // steps between rounds now
  std::optional<Round> round_;
  std::int64_t ahead_ = 1;    // a round is of a step that lies so far above the highest known one
  std::int64_t reached_ = 0;  // highest step in a late answer
  // Since the generation began.
  bool settled_ = false;
  bool told_ = false;             // that a set is whole
  std::int64_t whole_step_ = -1;  // of the newest one
  schedule::Neighbors neighbors_;
  std::vector<std::string> nodes_;           // by stage
  std::optional<SteadyTime> leaving_since_;  // the first of those that are not served yet
  std::set<control::SessionId> served_;      // have left, or may
  int failed_copies_ = 0;                    // in a row
  std::string no_copies_;                    // why there are none for now
  std::string state_;
};

}  // namespace weir::coordinator
