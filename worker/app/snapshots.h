// SPDX-License-Identifier: Apache-2.0
// Snapshots of a rank (worker/engine/snapshots.h), and copies of other ranks', in a folder of its
// own. A process that is started again in the same pod finds there what its predecessor held. The
// folder lies in memory, if it is that of the operator. Trouble with it costs snapshots, never a
// step.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "worker/app/snapshot_shelf.h"
#include "worker/base/clock.h"
#include "worker/base/settings.h"
#include "worker/checkpoint/save.h"
#include "worker/checkpoint/writer.h"
#include "worker/engine/snapshots.h"
#include "worker/protocol/messages.h"
#include "worker/stage/stage.h"
#include "worker/transport/state_exchange.h"

namespace weir::app {

class Snapshots final : public engine::Snapshots {
 public:
  using Send = std::function<void(const protocol::Message&)>;
  // The way to other ranks; without an exchange no copies are made. It outlives this object.
  struct Wire {
    transport::StateExchange* exchange = nullptr;
    std::string job_uid, job_key;
  };

  // owner: the job and the pod; settings: of this run. Snapshots of others, and damaged ones, are
  // removed with a warning. The model outlives this object.
  Snapshots(const std::string& folder, const std::string& owner, const stage::Model& model,
            const Settings& settings, Wire wire);
  ~Snapshots() override;
  Snapshots(const Snapshots&) = delete;
  Snapshots& operator=(const Snapshots&) = delete;

  // Sets the receiver of SAVED; an empty function means none. Any thread.
  void tell(Send send);
  // Bytes of copies that have come, and the step of the newest one that is kept (-1: none). Any
  // thread.
  std::int64_t copied_bytes() const { return copied_bytes_; }
  std::int64_t copy_step() const;
  // Memory of the snapshots and copies that are kept. Any thread.
  std::int64_t host_bytes() const;
  // For how long the engine has copied state into snapshots. Any thread.
  double waited_seconds() const { return waited_seconds_; }

  void take(stage::Stage& stage, schedule::LayerRange layers, std::int64_t step,
            std::int64_t compressed_steps) override;
  void copy(const protocol::Save& order, bool beside) override;
  void taken_by_all(std::int64_t step, bool all) override;
  Status load(stage::Stage& stage, std::int64_t step) override;
  Result<engine::StoredLayers> copied(schedule::LayerRange layers, std::int64_t step) override;
  void await(std::int64_t history, std::int64_t start) override;
  void begin(std::int64_t history, std::int64_t start) override;
  void runs(std::uint32_t revision, int incarnation) override;
  protocol::Inventory inventory() const override;

 private:
  // To which histories the snapshots belong: engine::Snapshots::await().
  struct Histories {
    std::int64_t begun = 0, awaited = 0, start = 0;
    std::int64_t revision = 0, incarnation = 0;  // of the last plan
  };

  void read_histories();
  void write_histories();
  struct Order {
    std::int64_t step = 0, compressed_steps = 0;
    schedule::LayerRange layers;
    SteadyTime since{};
    double copy_seconds = 0;
    bool beside = false;  // writing takes no processor from training
    transport::StateKey key;
  };
  Status write(const Order& order, std::vector<checkpoint::LayerImage>& images);
  struct CopyOrder {
    std::int64_t step = 0;
    protocol::CopySource source;
    bool beside = false;
    transport::StateKey key;
    std::stop_token stop;
    SnapshotShelf* shelf = nullptr;
  };
  Status fetch(const CopyOrder& order);
  transport::StateKey key_of(std::int64_t step) const;
  // Lets the neighbor fetch the snapshot; false if it cannot.
  bool offer(const Order& order);
  void remove(const std::vector<std::int64_t>& steps);  // snapshots that are forgotten
  void remove_later(std::vector<std::int64_t> steps);
  void remove_later(SnapshotShelf& shelf, std::vector<std::int64_t> steps);  // of copies
  // Forgets these copies; the files are removed now or later.
  void forget_copies(const std::function<bool(std::int64_t step)>& which, bool later);
  // The shelf for a copy of that step from that layer on; null if all have another one.
  SnapshotShelf* shelf_for(std::int64_t step, int first_layer);
  std::vector<SnapshotShelf::Kept> kept_copies() const;
  void say(const protocol::Message& message);
  void say_saved(std::int64_t step, const std::string& error);
  void say_copy_failed(std::int64_t step, const Error& error);

  const Wire wire_;
  SnapshotShelf own_;
  // A shelf has one copy of a step. The first one serves while nobody leaves.
  std::vector<std::unique_ptr<SnapshotShelf>> copies_;
  std::mutex send_mutex_;  // guards send_
  Send send_;
  Histories histories_;         // engine thread
  std::stop_source stop_copy_;  // engine thread
  std::int64_t own_bytes_ = 0;  // of the last snapshot; engine thread
  std::atomic<std::int64_t> copied_bytes_{0};
  std::atomic<double> waited_seconds_{0};
  std::mutex offer_mutex_;  // guards the three below
  bool closed_ = false;     // nothing is offered any more
  std::int64_t offered_step_ = -1;
  engine::StoredLayers offered_;
  checkpoint::Writer writer_, copier_;
};

}  // namespace weir::app
