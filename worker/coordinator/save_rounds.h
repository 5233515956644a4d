// SPDX-License-Identifier: Apache-2.0
// Decides which step is saved when (worker/coordinator/README.md "Saves"). A round is SAVE to all
// ranks, SAVED from all ranks, the commit, and SAVED to all ranks; one round at a time. A round is
// due after each interval, at the last step, and when a rank wants to leave. Files of a failed
// round are removed. If the disk was full, the oldest checkpoint is removed, too, and the save is
// repeated. No socket: time and members are arguments, messages are return values.
//
// A checkpoint has proved good when a later step had a finite loss and gradient (STATUS). The
// newest good checkpoint stays until a newer one has proved good. So does a checkpoint that only
// one rank could not read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "worker/base/clock.h"
#include "worker/coordinator/checkpoints.h"
#include "worker/coordinator/compressed_steps.h"
#include "worker/coordinator/members.h"
#include "worker/coordinator/startup.h"
#include "worker/schedule/plan.h"

namespace weir::coordinator {

class SaveRounds {
 public:
  SaveRounds(const CheckpointPolicy& policy, std::int64_t total_steps, int layers);

  struct Effects {
    Outgoing send;
    std::optional<CheckpointOrder> commit;
    std::optional<CheckpointRemoval> remove;  // call removed() when it is done
    std::vector<std::string> notes, warnings;
    std::string unusable;  // if set: why training cannot continue
  };
  // The generation that trains; plan is null if there is none.
  struct Training {
    const schedule::Plan* plan = nullptr;
    int incarnation = 0;
    // Highest step that a rank may have reached without a report (sync_rounds.h).
    std::int64_t reached = 0;
    std::set<int> lost = {};  // replicas that are lost: the others save all layers
    const CompressedSteps* compressed = nullptr;  // null: none
  };

  // Call this after any change and on each tick.
  Effects advance(const Training& training, const Members& members, SteadyTime now);
  Effects on_saved(int index, const protocol::Saved& saved, const Training& training,
                   const Members& members, SteadyTime now);
  Effects committed(std::int64_t step, const SaveResult& result, const Members& members,
                    SteadyTime now);
  void removed() { --removing_; }
  // Takes the STATUS of any rank that trains.
  void on_status(const protocol::StageStatus& status);
  // A rank could not load the checkpoint because of its content.
  Effects on_bad(int index, const protocol::BadCheckpoint& bad);

  std::int64_t newest() const { return whole_.empty() ? -1 : whole_.back().step; }
  Checkpoint newest_checkpoint() const { return whole_.empty() ? Checkpoint{-1} : whole_.back(); }

 private:
  struct Round {
    std::int64_t step = 0, samples = 0, compressed_steps = 0;
    std::set<int> lost;  // replicas that are not asked
    std::set<int> waiting;
    std::map<std::string, protocol::SavedFile> files;  // by name: layers in order
    std::set<control::SessionId> leaving;              // ranks that may end after the round
    bool committing = false, overdue = false;
    std::vector<std::int64_t> keep;  // passed to the commit
    SteadyTime opened{};
  };

  std::optional<std::int64_t> due(std::int64_t highest, SteadyTime now) const;
  void open(std::int64_t step, const Training& training, const Members& members, SteadyTime now,
            Effects& effects);
  void serve_leaving_ranks(const Training& training, const Members& members, std::int64_t highest,
                           SteadyTime now, Effects& effects);
  void close(const SaveResult& result, const Members& members, SteadyTime now, Effects& effects);
  bool make_room(Effects& effects);
  void look_at_the_clock(const Members& members, SteadyTime now, Effects& effects);
  void drop_surplus(Effects& effects);
  std::int64_t newest_proven() const;
  void remove(const CheckpointRemoval& removal, Effects& effects);
  std::int64_t samples_at(std::int64_t step, const schedule::Plan& plan) const;
  void order_commit(const Training& training, Effects& effects);

  const CheckpointPolicy policy_;
  const std::int64_t total_steps_;
  const int layers_;
  std::vector<Checkpoint> whole_;      // oldest first
  std::vector<std::int64_t> doubted_;  // still on disk, but a rank could not read them
  std::optional<Round> round_;
  std::int64_t ahead_ = 1;       // SAVE names this many steps above the highest reported one
  std::int64_t reached_ = 0;     // highest step in a late answer
  std::int64_t last_step_ = -1;  // of the last round of this generation
  bool last_failed_ = false;     // the save of the last step failed
  int failures_ = 0;             // failures in a row
  int removing_ = 0;             // orders that are not done
  bool again_ = false;           // a save failed because the disk was full, and there is space now
  bool given_up_ = false;        // Effects::unusable has been returned
  bool skips_ = false;           // the last reported step changed no parameter
  std::int64_t proven_ = -1;     // checkpoints up to this step have proved good
  std::optional<SteadyTime> next_;       // next save, if saves are due by time
  std::set<control::SessionId> served_;  // leaving ranks that have been answered
};

}  // namespace weir::coordinator
