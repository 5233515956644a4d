// SPDX-License-Identifier: Apache-2.0
// The engine of one rank: waits for a plan, builds its stage, runs one step after the other, and
// changes plans between steps (worker/coordinator/README.md "Plan switch"). One thread calls run();
// any thread may call the other functions.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "worker/base/clock.h"
#include "worker/base/result.h"
#include "worker/engine/engine_parts.h"
#include "worker/engine/flight_recorder.h"
#include "worker/engine/holding.h"
#include "worker/engine/mailbox.h"
#include "worker/engine/statistics.h"
#include "worker/engine/stopwatch.h"
#include "worker/stage/stage.h"
#include "worker/transport/communicator.h"
#include "worker/transport/state_exchange.h"

namespace weir::engine {

class OfferedState;

class Engine {
 public:
  Engine(Options options, Parts parts, Callbacks callbacks);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Trains until the end, for any reason. Blocks; call it once.
  Ending run(const std::stop_token& stop);

  Mailbox& mailbox() { return mailbox_; }
  // Finishes the running step if that takes at most `grace`, then ends.
  void leave(std::chrono::nanoseconds grace);
  // Trains until the coordinator says that a checkpoint is complete, or for `grace`, then ends.
  // Where none is written, the same for copies of this rank's state (snapshots.h); without either
  // as leave() does. Ends at once if no generation runs. But a rank that has got COMMIT builds and
  // connects its stage and waits for GO or ABORT first, so that the others do not begin in vain.
  void leave_saved(std::chrono::nanoseconds grace);
  void checkpoint_written(std::chrono::nanoseconds took) { recorder_.checkpoint_written(took); }
  Statistics statistics() const { return recorder_.read(); }
  const FlightRecorder& flight() const { return flight_; }  // empty without Options::flight_events
  // Tells the coordinator, in the next HELLO, too, what this rank holds, unless it trains. Engine
  // thread, or before run().
  void tell_inventory();
  // The links of the current generation; empty between generations.
  std::vector<transport::LinkReport> links() const;

 private:
  // Null: nothing is recorded.
  FlightRecorder* recording() { return options_.flight_events > 0 ? &flight_ : nullptr; }
  struct Generation;
  struct Prepared {
    schedule::Plan plan;
    int incarnation = 0;
  };
  struct KeptShare {
    Share share;
    int micro_batch_size = 0, micro_batches = 0;  // as in protocol::KeptSums
    schedule::Codecs codecs;
  };
  struct Pending {
    Letter letter;
    protocol::Commit commit;
    bool in_band = false;  // same generation: applied between two steps, on the same links
  };

  // engine.cpp: the loop.
  std::optional<Ending> should_end(const std::stop_token& stop);
  void await_letter(const std::stop_token& stop);
  StepParts step_parts(const data::Dataset& dataset, std::function<bool()> go_on);
  std::optional<Ending> train_one_step(const std::stop_token& stop);
  void count_step(StepRecord& record);  // it is done
  std::optional<Ending> validate(const std::stop_token& stop);
  void say_ready(double seconds);  // Partial only: SYNC_READY of this step
  Result<std::optional<protocol::Grant>> granted(SteadyTime until, const std::stop_token& stop);
  Ending finish(const std::stop_token& stop);
  Ending diverged(const std::stop_token& stop);
  // Waits until peers have received everything.
  void drain(std::chrono::nanoseconds limit, const std::stop_token& stop);
  std::optional<Ending> failed(const Error& error, const std::stop_token& stop);
  bool leaving() const { return leave_at_.load() != 0; }
  // COMMIT of a generation has come, GO has not, and nothing that says that it never will.
  bool begins() const;
  bool quits() const;  // it is to leave, and need not connect first
  bool leave_overdue() const;
  // A leaving rank still does the step that the stages before it may have begun, so that all ranks
  // that leave together end at the same step. Also notes the step in which the leave was requested.
  bool one_more_step();
  bool switch_due() const;
  bool copies_for_saves() const { return options_.saves && parts_.device.is_host(); }

  // Whether this rank's state goes on as a copy that another rank keeps: one replica, several
  // stages. If not, a rank that is to leave without a checkpoint ends after its step.
  void settle_leave();

  // snapshots.cpp.
  // more: bytes besides the snapshots.
  std::string no_room_for_snapshots(std::int64_t more = 0) const;
  std::int64_t room_beside_device() const;
  void on_save_of_snapshot(const protocol::Save& order);
  void copy_snapshot(const protocol::Save& order);
  void snapshot_if_due();
  void begin_snapshots();  // GO
  void tell_snapshots_of_plan();
  Status roll_back(const schedule::Plan& plan, std::int64_t at_step);

  // saving.cpp: checkpoints.
  void on_save(const protocol::Save& order);
  void on_saved(const protocol::Saved& saved);
  void save_if_due();
  bool leave_is_over() const;  // leave_saved(): saved, failed or overdue
  std::optional<Ending> end_of_leave() const;
  bool holds() const;  // true if the next step must not begin before a save is done
  std::optional<Ending> hold(const std::stop_token& stop);
  Status fill_stage(stage::Stage& stage, const schedule::Plan& plan);
  // Whether that writes all values, so that initial ones are not needed.
  bool fills(const schedule::Plan& plan) const;

  // commands.cpp: the coordinator's messages, and plans.
  void take_letters();
  void on(const Letter& letter);
  std::string on_prepare(const protocol::Prepare& prepare);  // returns the reason against it
  void on_commit(const Letter& letter, const protocol::Commit& commit);
  void on_go(const protocol::Go& go);
  void on_abort(const protocol::Abort& abort);
  void on_peer_lost(const protocol::PeerLost& lost);
  protocol::Measured on_measure(const protocol::Measure& request);
  void on_grant(const protocol::Grant& grant);
  bool in_band(const schedule::Plan& next, int incarnation) const;
  // Answers the COMMIT that waits for its boundary: why there is no switch, or "" after it.
  void end_pending(const std::string& reason);
  Status begin_with_header(const std::stop_token& stop);
  Status accept_header(std::span<const std::byte> bytes);
  // The plan in force or a prepared one; an error without the name of the peer.
  Result<const Prepared*> plan_named_by(std::span<const std::byte> bytes) const;
  void adopt(const Prepared& prepared);
  void name_model();  // of what is held
  // First stage: the epoch to change to before this step; 0 = none.
  std::uint32_t due_epoch() const;
  std::uint32_t wanted_epoch() const;  // the epoch to propose for the next step; 0 = none
  const Prepared* prepared(std::uint32_t revision) const;

  // generation.cpp: new links, and a new stage if needed.
  std::optional<Ending> enter_generation(const std::stop_token& stop);
  Status build(std::unique_ptr<Generation>& generation, const Prepared& next,
               const protocol::Commit& commit, const std::stop_token& stop);
  void roll_forward(const protocol::Verdict& verdict);
  // Takes over what COMMIT says of sums that replicas keep.
  Status keep_sums(Generation& generation, const protocol::Commit& commit);
  void give_up_generation();
  void replace_holding(Holding holding);
  Status warm_up(Generation& generation);
  Status connect(Generation& generation, const std::stop_token& stop);
  Status connect_replicas(Generation& generation, const std::stop_token& stop);
  Status connect_ties(Generation& generation, const std::stop_token& stop);
  Result<std::unique_ptr<transport::Collective>> connect_group(
      const transport::ReplicaGroupGeneration& wanted, const std::stop_token& stop);
  Status take_stage(Generation& generation, const Prepared& next, std::int64_t at_step);
  // state_move.cpp: layers from live ranks.
  transport::StateKey key_of_move(const Prepared& next, std::int64_t at_step) const;
  Status offer_state(const Prepared& next, std::int64_t at_step);
  Status move_stage(Generation& generation, const Prepared& next, std::int64_t at_step,
                    const std::stop_token& stop);
  void abort_links(const std::string& reason);  // so that the peers learn the reason
  void drop_links();

  const Options options_;
  const Parts parts_;
  const Callbacks callbacks_;
  Mailbox mailbox_;
  Recorder recorder_;
  FlightRecorder flight_;
  std::atomic<std::int64_t> leave_at_{0};        // steady clock, ns; 0 = not leaving
  std::atomic<std::int64_t> leave_saved_at_{0};  // the same for leave_saved()
  std::atomic<bool> begins_first_{false};        // leave_saved() was called
  std::jthread grace_end_;                       // of leave_saved(): ends connecting

  // Engine thread only, from here on.
  Stopwatch stopwatch_;
  BoundaryCodec codec_;
  std::vector<Prepared> prepared_;
  std::optional<Pending> pending_;
  std::uint32_t agreed_epoch_ = 0;  // all replicas change to it before the next step; 0 = none
  std::optional<protocol::Grant> grant_;    // Partial only: the last grant of this generation
  transport::CollectiveCounters reported_;  // Partial only: counters at the last SYNC_READY
  Holdings holdings_;                       // used by the two below, which are destroyed before it
  std::unique_ptr<Generation> generation_;
  std::unique_ptr<OfferedState> offer_;  // the state before a move, offered until the GO
  std::int64_t step_ = 0;                // next step of this rank
  std::int64_t compressed_steps_ = 0;    // of the steps before, those with codecs
  // The layers and samples of warm_up() so far: kernels stay loaded.
  std::vector<std::pair<schedule::LayerRange, int>> warmed_;
  // The step that the rank has dropped, if only its verdict and its update were left.
  std::optional<StepRecord> summed_;
  std::optional<protocol::Verdict> verdict_;  // of the last step of what is held
  // Partial: the step was dropped between its update and the end of its average.
  bool between_models_ = false;
  std::int64_t ran_history_ = 0;  // the highest whose GO has come
  int skipped_in_row_ = 0;        // in a row, in this generation
  std::int64_t validated_ = 0;    // step of the last validation, or of the start of this generation
  std::optional<std::string> lost_;  // reason of the coordinator's PEER_LOST until it is handled
  bool lost_elsewhere_ = false;      // with lost_: in another replica than this one
  // Sums of the next step in the stage that is held: another replica's loss has ended that step.
  std::optional<KeptShare> share_;
  std::optional<std::int64_t> leave_before_;  // leaving: the first step that does not begin
  bool leave_now_ = false;                    // leaving, and a peer is lost: no further step begins
  bool others_finished_ = false;              // all steps are done; matters only to an idle rank
  bool in_step_ = false;                      // between the first and the last op of a step
  bool interrupted_ = false;                  // StepRecord::interrupted of the step under way
  bool ever_ran_ = false;                     // a generation has had its GO
  SteadyTime waiting_since_{};                // since then no generation runs

  struct Saving {
    std::optional<std::int64_t> ordered;  // the step to save
    std::vector<int> replicas;            // replicas that divide its layers; empty: all of the plan
    std::int64_t copied = -1;             // the last step that was copied for a save
    bool released = false;                // a leaving rank may end
    bool last_done = false;               // the checkpoint of the last step is complete
    std::string failure;                  // why the awaited save failed
    std::optional<SteadyTime> holds_since;
  };
  Saving saving_;
  std::optional<std::int64_t> snapshot_at_;  // the step of which a snapshot is ordered
  std::optional<Ending> give_up_;            // set by an error that a new plan would not repair

  mutable std::mutex links_mutex_;  // guards links_
  std::shared_ptr<transport::Communicator> links_;
};

}  // namespace weir::engine
