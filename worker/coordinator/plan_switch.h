// SPDX-License-Identifier: Apache-2.0
// PREPARE, READY, COMMIT and GO as a state machine (worker/coordinator/README.md "Plan switch"),
// and the rejoin of a broken generation (incarnation + 1). No socket: time and members are
// arguments, messages to send are return values. Used only on the coordinator's thread. The
// operator decides which plan is good.
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
#include "worker/coordinator/compressed_steps.h"
#include "worker/coordinator/dead_links.h"
#include "worker/coordinator/members.h"
#include "worker/coordinator/recovery_point.h"
#include "worker/coordinator/startup.h"
#include "worker/protocol/messages.h"

namespace weir::coordinator {

struct Effects {
  Outgoing send;
  std::vector<protocol::LastSwitch> finished;  // reported at once, in this order
  std::vector<std::string> notes;              // for the log
};

// Fills fields that a plan may omit: job uid, ranks (stage s of replica r = worker r S + s), and
// their pod uid, ip and data port. kUnavailable, e.g. "pod gpt-0-1 is not connected": it may still
// come. kInvalid: the plan can never work.
Result<schedule::Plan> fill_plan(schedule::Plan plan, const std::string& job_uid,
                                 const Members& members);

class PlanSwitch {
 public:
  PlanSwitch(std::string job_uid, int layers,
             std::int64_t total_steps = std::numeric_limits<std::int64_t>::max(),
             std::chrono::nanoseconds progress_deadline = std::chrono::seconds(1800),
             std::int64_t term = protocol::kFirstTerm, std::string lost_pod_uid = "")
      : job_uid_(std::move(job_uid)),
        layers_(layers),
        total_steps_(total_steps),
        progress_deadline_(progress_deadline),
        lost_pod_uid_(std::move(lost_pod_uid)),
        history_((term - protocol::kFirstTerm) * kHistoriesOfTerm) {}

  Effects on_plan(const schedule::Plan& plan, const Members& members, SteadyTime now);
  // The member has lost its session; `members` already says so.
  Effects on_lost(int index, const std::string& reason, const Members& members, SteadyTime now);
  // Takes READY, REJECT, MOVED, READY_STATE, STATUS, PEER_LOST, UNANSWERED and PROBED. Other
  // messages are ignored.
  Effects on_message(int index, const protocol::Message& message, const Members& members,
                     SteadyTime now);
  // Checks deadlines; also call it after a HELLO.
  Effects tick(const Members& members, SteadyTime now);

  // The plan that trains, or that trained until its generation broke. Null before the first plan.
  const schedule::Plan* plan() const { return applied_ ? &*applied_ : nullptr; }
  int incarnation() const { return base_incarnation_; }
  std::uint32_t highest_seen() const { return highest_seen_; }
  bool broken() const { return broken_; }
  // The plan of the generation that trains now; null if there is none.
  const schedule::Plan* training() const { return base_ && !broken_ ? &*base_ : nullptr; }
  // Replicas of that plan that have lost a rank. Replicas that average continue without them until
  // all pods have returned or the next plan comes. A new generation then takes its state from the
  // remaining replicas.
  const std::set<int>& lost() const { return lost_; }
  // Replicas of its revision's plan without which training() goes on, because they lack a rank: the
  // others compute their micro-batches (cover.h) and are numbered from 0. A new generation with all
  // follows when all pods have returned.
  const std::set<int>& covered() const { return covered_; }
  // Replicas of that plan without which its ranks have trained last, in either way.
  const std::set<int>& gone() const { return gone_; }
  // Sets the newest checkpoint (-1 = none) and returns whether it changed. A plan's checkpoint is
  // chosen when the plan is prepared.
  bool set_checkpoint(std::int64_t step, std::int64_t compressed_steps = 0) {
    checkpoint_compressed_ = compressed_steps;
    return std::exchange(checkpoint_step_, step) != step;
  }
  const CompressedSteps& compressed() const { return compressed_; }
  const DeadLinks& dead_links() const { return dead_; }

 private:
  enum class Phase : unsigned char {
    kIdle,
    kGathering,  // waits until all pods of the plan are connected
    kPreparing,  // PREPARE sent
    kLoading,    // COMMIT of a new generation sent; waits for READY_STATE of all
    kApplying,   // GO, or COMMIT in band, sent; waits for a STATUS with the epoch from all
  };
  struct Attempt {
    schedule::Plan wanted;  // as the source sent it
    schedule::Plan plan;    // with all fields filled
    int incarnation = 0;
    bool rejoin = false;
    bool new_generation = false;
    std::set<int> covered = {};               // replicas of `wanted` that `plan` goes without
    bool joins = false;                       // the covered replicas of a live generation join it
    std::optional<SteadyTime> cover_at = {};  // until then lost processes may return
    bool keeps_state = false;                 // all ranks are at `step`; nothing is loaded
    std::int64_t step = 0;
    std::optional<RecoveryPoint> point = {};  // the generation starts from what ranks hold there
    std::string no_point = {};                // why ranks hold no such point, if one was looked for
    std::vector<protocol::KeptIds> kept = {};  // what replicas have computed of the step behind it
    std::int64_t repeated_steps = 0;
    std::int64_t compressed_steps = 0;  // of the checkpoint that is loaded
    // Time of the next request for what ranks hold, and the end of the wait for it.
    std::optional<SteadyTime> ask_at = {}, asks_until = {}, asks_longer_until = {};
    std::set<int> waiting;                   // workers that have not answered
    bool unprepared = false;                 // they did not in time
    std::optional<SteadyTime> deadline;      // of the phase
    std::optional<SteadyTime> ends_at = {};  // the meeting of ranks between which a link is dead
    SteadyTime not_before{};                 // start of a delayed rejoin
    SteadyTime prepared_at{}, committed_at{};
    std::int64_t due_step = 0;  // in band: expected first step of the new epoch
    double pause_seconds = 0;
    std::int64_t moved_bytes = 0;
    std::optional<std::int64_t> first_step;  // completed steps before the first step of the epoch
  };

  void begin(const schedule::Plan& wanted, bool rejoin, const Members& members, SteadyTime now,
             Effects& effects);
  void try_prepare(const Members& members, SteadyTime now, Effects& effects);
  const schedule::Plan* base() const { return base_ ? &*base_ : nullptr; }
  // The live generation lacks replicas, whose places are filled again by a new one.
  bool reduced() const { return !lost_.empty() || (!covered_.empty() && !broken_); }
  // recover.cpp: after a failure, the wanted plan without the replicas that lack a rank. Nothing:
  // it cannot go without them, or they may return soon.
  std::optional<schedule::Plan> cover(const Members& members, SteadyTime now);
  // While training goes on, a link between ranks of the next plan is dead, or one is silent.
  void await_answers(const schedule::Plan& plan, const Members& members, SteadyTime now,
                     Effects& effects);
  // A new coordinator may soon be found by ranks of the attempt's plan that it does not know yet:
  // by any but the coordinator before it, which is lost.
  bool others_may_come(const Members& members, SteadyTime now) const;
  bool patient() const;  // true if it waits for its pods without a deadline
  // Time limits. Ranks answer PREPARE between two ops, so within a step. A plan is applied when a
  // step with it is done.
  std::chrono::nanoseconds time_to_answer(const Members& members) const;
  std::chrono::nanoseconds time_to_apply(const Members& members) const;
  int next_incarnation(const Members& members) const;
  void decide_state(const Members& members);
  // True if the state of the ranks suffices for the attempt.
  bool can_keep(const Members& members) const;
  // recover.cpp, after a failure: true while members have yet to tell what they hold.
  bool awaits_inventories(const Members& members, SteadyTime now, Effects& effects);
  // The ranks that have not told in time count as lost until they tell. Returns whether there is a
  // new one.
  bool give_up_silent(const Members& members, Effects& effects);
  bool silent(const MemberState& state) const;
  bool has_silent(const schedule::Plan& plan, const Members& members) const;
  void leave_out_silent(std::set<int>& lost, const Members& members) const;
  // PREPARE is not answered in time.
  void note_unprepared(const Members& members);
  // True while it goes on to ask, because what the others hold lies more than a step behind one of
  // the missing members.
  bool asks_longer(const std::vector<int>& missing, const Members& members, SteadyTime now,
                   Effects& effects);
  // True if ranks have trained with the plan of the attempt, though this coordinator is new: what
  // the plan says of the state was done then.
  bool runs_already(const Members& members) const;
  bool recovers() const;  // the state of the attempt is what ranks hold after a failure
  std::vector<MemberInventory> inventories(const Members& members) const;
  bool told(const MemberState& state) const;
  std::optional<RecoveryPoint> point_told(const Members& members) const;  // from inventories()
  // Fills state and holders of the attempt from the recovery point. Returns false without one, or
  // if the checkpoint is newer.
  bool take_point(const Members& members);
  bool holds_point(const Members& members) const;  // take_point() would return true
  // The sums that the attempt's ranks keep at its recovery point.
  std::vector<protocol::KeptIds> sums_at_point(const Members& members) const;
  // Steps that some rank had done, and that a start from the state of the attempt does again.
  std::int64_t repeated(const Members& members) const;
  void note_told(const Members& members, bool idle_too);
  // plan_state.cpp, state Move: finds the holders of all layers. Returns a reason if no live rank
  // holds some layer.
  std::string find_holders(const Members& members);
  // Holder of the attempt at this member, or null.
  const schedule::LayerHolder* holder(const MemberState* state) const;
  // The step at which all ranks can still stop.
  std::int64_t boundary(const Members& members) const;
  void commit(const Members& members, SteadyTime now, Effects& effects);
  // Steps with codecs before the new generation, which goes on after at_step steps.
  std::int64_t compressed_before(std::int64_t at_step, const Members& members) const;
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
  void on_unanswered(int index, const protocol::Unanswered& unanswered, const Members& members,
                     SteadyTime now, Effects& effects);
  // Ends the attempt before COMMIT: sends ABORT to its ranks, then keeps the old plan or rejoins
  // it.
  void prepare_again(const Members& members, SteadyTime now, Effects& effects);
  void give_up(protocol::Outcome outcome, const std::string& reason, const Members& members,
               SteadyTime now, Effects& effects);
  // A failure of the attempt delays the next one, so that what fails by itself is not tried without
  // end. The loss of a process does not: the next attempt has other members. But one that is lost
  // again before a generation trains, and one that comes to join, count as failures.
  void count_failure();
  void forgive(int index, bool newcomer, const Members& members, SteadyTime now, Effects& effects);
  // Replicas that average continue without the replica of `rank`; its other ranks except `except`
  // are told. Returns false if no replica can continue: the generation is lost.
  bool lose_replica(int except, const schedule::RankPlace* rank, const protocol::PeerLost& lost,
                    const Members& members, Effects& effects);
  void replica_lost(int except, const schedule::RankPlace* rank, const protocol::PeerLost& lost,
                    const Members& members, SteadyTime now, Effects& effects);
  // The generation is lost: tells its ranks except `except`, and rejoins when all have connected.
  void generation_lost(int except, const protocol::PeerLost& lost, const Members& members,
                       SteadyTime now, Effects& effects);
  void rejoin(const Members& members, SteadyTime now, Effects& effects);
  void not_applied(const Members& members, SteadyTime now, Effects& effects);
  std::string silent_pods(const Members& members) const;  // that have not answered
  void applied(const Members& members, SteadyTime now, Effects& effects);
  void to_ranks(const schedule::Plan& plan, const protocol::Message& message,
                const Members& members, Effects& effects, int except = -1) const;
  void to_replica(int replica, const protocol::Message& message, const Members& members,
                  Effects& effects, int except) const;  // of base_
  // Sends a message to members without a rank in a new generation, so that they know that they are
  // idle.
  void to_idle(const protocol::Message& message, const Members& members, Effects& effects) const;
  void report(protocol::Outcome outcome, const std::string& reason, Effects& effects) const;

  // at_step is the highest reported step + 2 (worker/coordinator/README.md "Boundaries").
  static constexpr int kStepsAhead = 2;
  // A coordinator that nobody follows any more may begin histories, too. None of them is as high as
  // one of a later term.
  static constexpr std::int64_t kHistoriesOfTerm = std::int64_t{1} << 32;

  const std::string job_uid_;
  const int layers_;
  const std::int64_t total_steps_;
  const std::chrono::nanoseconds progress_deadline_;
  const std::string lost_pod_uid_;  // of the coordinator before; "" = not known to be lost
  Phase phase_ = Phase::kIdle;
  std::optional<Attempt> attempt_;         // set if phase_ is not kIdle
  std::optional<schedule::Plan> next_;     // a plan that came during a COMMIT
  std::optional<schedule::Plan> base_;     // last committed plan, filled: the ranks hold its state
  std::optional<schedule::Plan> applied_;  // last plan with which all its ranks have trained
  int base_incarnation_ = 0;
  std::pair<std::uint32_t, int> last_prepared_{0, 0};  // revision, incarnation of the last PREPARE
  bool broken_ = false;                                // base_ has no live generation
  std::set<int> lost_;                                 // replicas of the live base_
  std::set<int> covered_;                // replicas of whole_ without which base_ was made
  std::optional<schedule::Plan> whole_;  // set if covered_ is not empty
  std::set<int> gone_;
  bool cover_refused_ = false;  // ranks have refused to go on without a replica
  bool apart_ = false;          // replicas have averaged in groups, so their models may differ
  bool scattered_ = false;      // a move has begun and not ended: the ranks hold no complete model
  // By worker index: MemberState::told when its COMMIT or GO was sent. What it holds is known once
  // it has told more.
  std::map<int, std::uint64_t> told_before_;
  // By worker index: MemberState::told when it counted as lost, because it did not answer.
  std::map<int, std::uint64_t> silent_;
  std::int64_t history_;  // of the last COMMIT of a new generation
  int failed_rejoins_ = 0, failed_joins_ = 0;
  std::optional<bool> failed_join_;  // the newest counted failure, if not forgiven, is of a join
  std::set<int> lost_since_;         // workers that were lost since a generation has trained
  std::uint32_t highest_seen_ = 0;
  std::int64_t checkpoint_step_ = -1, checkpoint_compressed_ = 0;
  CompressedSteps compressed_;
  DeadLinks dead_;
};

}  // namespace weir::coordinator
