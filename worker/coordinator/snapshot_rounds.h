// SPDX-License-Identifier: Apache-2.0
// Decides of which step all ranks take a snapshot (worker/engine/README.md "Snapshots"). A
// round is SAVE to all ranks, SAVED from all ranks, and SAVED to all, by which older snapshots go,
// or this one if a rank has none. One round at a time. Rounds lie so far apart that they cost 1 %
// of the time at most. A round that fails costs its snapshots, never a step, and the next one comes
// later. No socket: time and members are arguments, messages are return values.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker/base/clock.h"
#include "worker/coordinator/checkpoints.h"
#include "worker/coordinator/members.h"
#include "worker/coordinator/startup.h"
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
    SteadyTime opened{};
    double seconds = 0;  // the longest of all ranks
  };

  void open(const schedule::Plan& plan, const Members& members, SteadyTime now, Effects& effects);
  void pace(const Members& members);
  // Ends the round; an error means that not all ranks have the snapshot.
  void close(const std::string& error, const Members& members, Effects& effects);
  // The same for an error that is likely to come again.
  void fail(const std::string& error, const Members& members, Effects& effects);

  const SnapshotPolicy policy_;
  const std::int64_t total_steps_;
  std::int64_t interval_;  // steps between rounds now
  std::optional<Round> round_;
  std::int64_t ahead_ = 1;    // a round is of a step that lies so far above the highest known one
  std::int64_t reached_ = 0;  // highest step in a late answer
  std::string state_;
};

}  // namespace weir::coordinator
