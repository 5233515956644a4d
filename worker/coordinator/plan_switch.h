// SPDX-License-Identifier: Apache-2.0
// PREPARE / READY / COMMIT / GO as a state machine (worker/coordinator/README.md "Plan switch"),
// and the rejoin of a broken generation (incarnation + 1). No socket; time and members are
// arguments, messages to send are return values. The coordinator's thread only. The operator, not
// this, decides which plan is good.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/base/clock.h"
#include "worker/base/result.h"
#include "worker/coordinator/members.h"
#include "worker/coordinator/startup.h"
#include "worker/protocol/messages.h"

namespace weir::coordinator {

struct Effects {
  Outgoing send;
  std::vector<protocol::LastSwitch> finished;  // to be reported at once, in this order
  std::vector<std::string> notes;              // for the log
};

// Fills what a plan may leave open: job uid, ranks (stage s of replica r = worker r S + s), their
// pod uid, ip and data port. kUnavailable "pod gpt-0-1 is not connected": may come; kInvalid: never
// right.
Result<schedule::Plan> fill_plan(schedule::Plan plan, const std::string& job_uid,
                                 const Members& members);

class PlanSwitch {
 public:
  PlanSwitch(std::string job_uid, int layers,
             std::int64_t total_steps = std::numeric_limits<std::int64_t>::max(),
             std::chrono::nanoseconds progress_deadline = std::chrono::seconds(1800))
      : job_uid_(std::move(job_uid)),
        layers_(layers),
        total_steps_(total_steps),
        progress_deadline_(progress_deadline) {}

  Effects on_plan(const schedule::Plan& plan, const Members& members, SteadyTime now);
  // The member has no session any more (members says so already).
  Effects on_lost(int index, const std::string& reason, const Members& members, SteadyTime now);
  // READY, REJECT, MOVED, READY_STATE, STATUS, PEER_LOST; others are ignored.
  Effects on_message(int index, const protocol::Message& message, const Members& members,
                     SteadyTime now);
  Effects tick(const Members& members, SteadyTime now);  // deadlines; also after a HELLO

  // The plan that trains, or has trained until its generation broke; null before the first.
  const schedule::Plan* plan() const { return applied_ ? &*applied_ : nullptr; }
  int incarnation() const { return base_incarnation_; }
  std::uint32_t highest_seen() const { return highest_seen_; }
  bool broken() const { return broken_; }
  // The plan of the generation that trains now; null while there is none.
  const schedule::Plan* training() const { return base_ && !broken_ ? &*base_ : nullptr; }
  // Replicas of that plan that have lost a rank: those that average go on without them, until all
  // pods are there again; then, or with the next plan, a new generation takes its state from those
  // that train.
  const std::set<int>& lost() const { return lost_; }
  // The newest checkpoint, -1: none. What a plan loads is decided when it is prepared.
  // True: another one than before.
  bool set_checkpoint(std::int64_t step) { return std::exchange(checkpoint_step_, step) != step; }

 private:
  enum class Phase : unsigned char {
    kIdle,
    kGathering,  // until all pods of the plan are connected
    kPreparing,  // PREPARE sent
    kLoading,    // COMMIT of a new generation sent, until READY_STATE of all
    kApplying,   // GO or COMMIT within the generation sent, until STATUS of all has the epoch
  };
  struct Attempt {
    schedule::Plan wanted;  // as the source gave it
    schedule::Plan plan;    // filled
    int incarnation = 0;
    bool rejoin = false;
    bool new_generation = false;
    bool keeps_state = false;  // all ranks stand at `step`, nothing is loaded
    std::int64_t step = 0;
    std::set<int> waiting;               // workers whose answer is missing
    std::optional<SteadyTime> deadline;  // of the phase
    SteadyTime not_before{};             // back-off of a rejoin
    SteadyTime prepared_at{}, committed_at{};
    std::int64_t due_step = 0;  // in band: the first step of the new epoch, as far as is known
    double pause_seconds = 0;
    std::int64_t moved_bytes = 0;
    std::optional<std::int64_t> first_step;  // completed steps at the first STATUS of the epoch
  };

  void begin(const schedule::Plan& wanted, bool rejoin, const Members& members, SteadyTime now,
             Effects& effects);
  void try_prepare(const Members& members, SteadyTime now, Effects& effects);
  const schedule::Plan* base() const { return base_ ? &*base_ : nullptr; }
  bool patient() const;  // waits for its pods without a deadline
  // How long the phase may take: ranks answer PREPARE between two ops, so within a step; a plan is
  // applied when a step with it is done.
  std::chrono::nanoseconds time_to_answer(const Members& members) const;
  std::chrono::nanoseconds time_to_apply(const Members& members) const;
  int next_incarnation(const Members& members) const;
  void decide_state(const Members& members);
  bool can_keep(const Members& members) const;  // what the ranks hold is enough for the attempt
  // plan_state.cpp: state Move. Who holds what now; the reason when some layer is nowhere live.
  std::string find_holders(const Members& members);
  const schedule::LayerHolder* holder(const MemberState* state) const;  // of the attempt
  std::int64_t boundary(const Members& members) const;  // where all ranks can still stop
  void commit(const Members& members, SteadyTime now, Effects& effects);
  void go(const Members& members, SteadyTime now, Effects& effects);
  void on_ready(int index, const protocol::Ready& ready, const Members& members, SteadyTime now,
                Effects& effects);
  void on_reject(int index, const protocol::Reject& reject, const Members& members, SteadyTime now,
                 Effects& effects);
  void on_ready_state(int index, const protocol::ReadyState& state, const Members& members,
                      SteadyTime now, Effects& effects);
  void on_status(int index, const protocol::StageStatus& status, const Members& members,
                 SteadyTime now, Effects& effects);
  void on_peer_lost(int index, const protocol::PeerLost& lost, const Members& members,
                    SteadyTime now, Effects& effects);
  // Ends the attempt before COMMIT: ABORT to its ranks, then the old plan or its rejoin.
  void give_up(protocol::Outcome outcome, const std::string& reason, const Members& members,
               SteadyTime now, Effects& effects);
  // Replicas that average go on without that of `rank`: its other ranks learn it, but `except`.
  // False: nobody can, the generation is gone.
  bool lose_replica(int except, const schedule::RankPlace* rank, const protocol::PeerLost& lost,
                    const Members& members, Effects& effects);
  void replica_lost(int except, const schedule::RankPlace* rank, const protocol::PeerLost& lost,
                    const Members& members, SteadyTime now, Effects& effects);
  // The generation is gone: tells its ranks (but `except`), then rejoins when all are there.
  void generation_lost(int except, const protocol::PeerLost& lost, const Members& members,
                       SteadyTime now, Effects& effects);
  void rejoin(const Members& members, SteadyTime now, Effects& effects);
  void not_applied(const Members& members, SteadyTime now, Effects& effects);
  void applied(const Members& members, SteadyTime now, Effects& effects);
  void to_ranks(const schedule::Plan& plan, const protocol::Message& message,
                const Members& members, Effects& effects, int except = -1) const;
  // Members without a rank in the plan of the attempt, if it is a new generation: they learn that
  // they are idle.
  void to_idle(const protocol::Message& message, const Members& members, Effects& effects) const;
  void report(protocol::Outcome outcome, const std::string& reason, Effects& effects) const;

  // at_step = highest reported step + 2: worker/coordinator/README.md "Boundaries"
  static constexpr int kStepsAhead = 2;

  const std::string job_uid_;
  const int layers_;
  const std::int64_t total_steps_;
  const std::chrono::nanoseconds progress_deadline_;
  Phase phase_ = Phase::kIdle;
  std::optional<Attempt> attempt_;         // when phase_ is not kIdle
  std::optional<schedule::Plan> next_;     // came while a COMMIT was under way
  std::optional<schedule::Plan> base_;     // last committed plan, filled: what ranks hold
  std::optional<schedule::Plan> applied_;  // last plan that all its ranks have trained with
  int base_incarnation_ = 0;
  std::pair<std::uint32_t, int> last_prepared_{0, 0};  // revision, incarnation of the last PREPARE
  bool broken_ = false;                                // base_ is no live generation
  std::set<int> lost_;                                 // replicas of base_, while it lives
  bool apart_ = false;      // replicas may hold models of their own: they average in groups
  bool scattered_ = false;  // a move has begun and not ended: what ranks hold is no whole model
  int failed_rejoins_ = 0;
  std::uint32_t highest_seen_ = 0;
  std::int64_t checkpoint_step_ = -1;
};

}  // namespace weir::coordinator
