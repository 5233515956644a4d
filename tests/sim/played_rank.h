// SPDX-License-Identifier: Apache-2.0
// A rank in virtual time that computes nothing: it follows plans, keeps state of stages and takes
// snapshots as an engine does (worker/engine/{commands,generation,snapshots}.cpp), with the real
// Mailbox between itself and its session with the coordinator.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "worker/engine/mailbox.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"

namespace weir::sim {

class PlayedRank;

// What a rank sees of the others.
class RankNetwork {
 public:
  virtual ~RankNetwork() = default;
  // The process that runs in that pod; null: none.
  virtual PlayedRank* running(const std::string& pod_uid) = 0;
  virtual PlayedRank* at_ip(const std::string& ip) = 0;
  // Both go on, and a path is open between them.
  virtual bool reach(const PlayedRank& one, const PlayedRank& other) const = 0;
  virtual void tell(const PlayedRank& from, const protocol::Message& message) = 0;
  virtual double now() const = 0;  // s
  virtual bool chance(int one_in) = 0;
  virtual void begins(const PlayedRank& rank) = 0;  // GO: with another generation
  virtual void ends_step(const PlayedRank& rank) = 0;
  virtual void fail(const std::string& what) = 0;  // a broken invariant
};

// What a pod keeps when its process ends (engine::Snapshots).
struct Shelf {
  struct Kept {
    std::int64_t step = 0;
    schedule::LayerRange layers;
  };
  std::vector<Kept> own, copies;
  std::int64_t begun = 0, awaited = 0, start = 0;  // histories
  std::uint32_t revision = 0;
  int incarnation = 0;

  void await(std::int64_t history, std::int64_t at) {
    awaited = history;
    start = at;
  }
  void begin(std::int64_t history, std::int64_t at);
  void taken_by_all(std::int64_t step, bool all);
  protocol::Inventory inventory() const;
};

class PlayedRank {
 public:
  // Outlives nobody: network and shelf stay.
  PlayedRank(RankNetwork& network, std::string pod_uid, std::string profile, Shelf& shelf);

  engine::Mailbox& mailbox() { return mailbox_; }
  const std::string& pod_uid() const { return pod_uid_; }
  // Whatever it does by itself: takes letters, enters generations, connects, notices lost peers.
  void beat();
  // The replicas of its generation end the step together, if this is the first of its ranks.
  void train();
  // Its process ends in the middle of a step: some peers may have ended that, others lack only the
  // update.
  void tear_step();
  // SIGTERM.
  void leave() { leaving_ = true; }
  bool has_left() const;

  bool trains() const {
    return generation_ && generation_->running && !generation_->broken && generation_->stage >= 0;
  }
  std::int64_t step() const { return held_ ? held_->step : 0; }
  std::int64_t history() const { return held_ ? held_->history : 0; }
  std::int64_t ran_history() const { return ran_history_; }
  std::uint32_t revision() const { return generation_ ? generation_->plan.revision : 0; }
  const schedule::Plan* plan() const { return generation_ ? &generation_->plan : nullptr; }
  // A live stage with all updates.
  const schedule::LayerRange* layers() const { return held_ ? &held_->layers : nullptr; }
  const Shelf& shelf() const { return shelf_; }
  std::string describe() const;

 private:
  struct Prepared {
    schedule::Plan plan;
    int incarnation = 0;
  };
  struct Pending {
    engine::Letter letter;
    protocol::Commit commit;
  };
  struct Generation {
    schedule::Plan plan;
    int incarnation = 0;
    std::int64_t history = 0, start = 0;
    int replica = -1, stage = -1;          // -1: idle
    std::vector<schedule::Ids> kept;       // by replica
    std::optional<engine::Letter> letter;  // its COMMIT, until it is answered
    std::stop_source connecting;
    double since = 0;        // of its COMMIT
    double steps_since = 0;  // of the step under way
    bool built = false, running = false, broken = false;
  };
  struct Held {
    schedule::LayerRange layers;
    std::int64_t step = 0, history = 0, pending = 0;
    bool summed = false;
    std::optional<protocol::KeptSums> sums = {};  // of the next step
  };

  void on(const engine::Letter& letter);
  std::string on_prepare(const protocol::Prepare& prepare);
  void on_commit(const engine::Letter& letter, const protocol::Commit& commit);
  void on_go(const protocol::Go& go);
  void on_abort(const protocol::Abort& abort);
  void on_peer_lost(const protocol::PeerLost& lost);
  void on_save(const protocol::Save& save);
  void copy(const protocol::Save& save);
  void on_saved(const protocol::Saved& saved);
  const Prepared* prepared(std::uint32_t revision) const;
  bool is(const schedule::RankPlace& rank) const { return rank.pod_uid == pod_uid_; }
  const schedule::LayerHolder* holder_of(const schedule::Plan& plan) const;
  bool holds(schedule::LayerRange layers) const { return held_ && held_->layers == layers; }
  void enter();
  void roll_back(const schedule::Plan& plan, std::int64_t at_step);
  void go_on_building();
  std::string build();    // why it cannot; sets `built`
  std::string connect();  // why it cannot; answers COMMIT
  std::string fetch(int layer, bool& there);
  bool serves(int layer, const Generation& of, std::int64_t at_step) const;
  void give_up(const std::string& error);
  void drop_step(bool elsewhere);
  void notice_ended_links();
  void tell_lost();
  void tell_inventory();
  bool in(const Generation& other) const;
  std::vector<PlayedRank*> peers();  // of its generation, that run in it
  bool stands_together();
  bool holds_step() const { return leaving_ && left_from_ == step() && !snapshot_at_; }
  void end_step();
  void check_sums() const;
  void take_snapshot();

  RankNetwork& network_;
  const std::string pod_uid_, profile_;
  Shelf& shelf_;
  engine::Mailbox mailbox_;
  std::vector<Prepared> prepared_;
  std::optional<Pending> pending_;
  std::optional<Generation> generation_;
  std::optional<Held> held_, next_;  // next: of a generation before its GO
  std::optional<double> verdict_;
  std::int64_t ran_history_ = 0;
  std::optional<std::int64_t> snapshot_at_;
  std::optional<double> tells_lost_at_;  // unless a COMMIT comes
  std::int64_t left_from_ = -1;          // the step behind which it does not go, when it leaves
  bool leaving_ = false, released_ = false;
};

}  // namespace weir::sim
