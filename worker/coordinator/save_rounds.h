// SPDX-License-Identifier: Apache-2.0
// Decides which step is saved when (worker/coordinator/README.md "Saves"): a round is SAVE to all
// ranks, SAVED of all ranks, the commit, SAVED to all ranks. One at a time. Due are: each interval,
// the last step, and a rank that wants to leave. What a failed round has left goes; where the disk
// was full the oldest checkpoint goes, too, and the save is tried again. No socket; time and
// members are arguments, messages are return values.
//
// A checkpoint has proved good when a later step had a finite loss and gradient (STATUS). The
// newest such one stays, and one that a single rank could not read, until a newer one has proved
// good.
#pragma once

#include <cstdint>
#include <map>
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

class SaveRounds {
 public:
  SaveRounds(const CheckpointPolicy& policy, std::int64_t total_steps, int layers);

  struct Effects {
    Outgoing send;
    std::optional<CheckpointOrder> commit;
    std::optional<CheckpointRemoval> remove;  // removed() when it is done
    std::vector<std::string> notes, warnings;
    std::string unusable;  // a reason: training cannot go on
  };
  // The generation that trains; plan is null while there is none.
  struct Training {
    const schedule::Plan* plan = nullptr;
    int incarnation = 0;
    std::int64_t reached = 0;  // by a rank that has not said so yet (sync_rounds.h)
    std::set<int> lost = {};   // replicas: the others save all layers
  };

  // After any change and on each tick.
  Effects advance(const Training& training, const Members& members, SteadyTime now);
  Effects on_saved(int index, const protocol::Saved& saved, const Training& training,
                   const Members& members, SteadyTime now);
  Effects committed(std::int64_t step, const SaveResult& result, const Members& members,
                    SteadyTime now);
  void removed() { --removing_; }
  // Of any rank that trains.
  void on_status(const protocol::StageStatus& status);
  // A rank could not load it, for its content.
  Effects on_bad(int index, const protocol::BadCheckpoint& bad);

  std::int64_t newest() const { return whole_.empty() ? -1 : whole_.back().step; }

 private:
  struct Round {
    std::int64_t step = 0, samples = 0;
    std::set<int> lost;  // replicas that are not asked
    std::set<int> waiting;
    std::map<std::string, protocol::SavedFile> files;  // by name: layers in order
    std::set<control::SessionId> leavers;              // may end when it is over
    bool committing = false, overdue = false;
    std::vector<std::int64_t> keep;  // with the commit
    SteadyTime opened{};
  };

  std::optional<std::int64_t> due(std::int64_t highest, SteadyTime now) const;
  void open(std::int64_t step, const Training& training, const Members& members, SteadyTime now,
            Effects& effects);
  void serve_leavers(const Training& training, const Members& members, std::int64_t highest,
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
  std::vector<std::int64_t> doubted_;  // still there, but a rank could not read them
  std::optional<Round> round_;
  std::int64_t ahead_ = 1;               // SAVE names a step so far beyond the highest one reported
  std::int64_t reached_ = 0;             // by a rank, as a late answer says
  std::int64_t last_step_ = -1;          // of the last round of this generation
  bool last_failed_ = false;             // the save of the last step
  int failures_ = 0;                     // in a row
  int removing_ = 0;                     // orders that are not done
  bool again_ = false;                   // a save failed for want of room, which there is now
  bool given_up_ = false;                // as it was told (Effects::unusable)
  bool skips_ = false;                   // the last step told changed no parameter
  std::int64_t proven_ = -1;             // checkpoints up to that step have proved good
  std::optional<SteadyTime> next_;       // by time
  std::set<control::SessionId> served_;  // leaving ranks that have been told
};

}  // namespace weir::coordinator
