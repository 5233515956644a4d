// SPDX-License-Identifier: Apache-2.0
// Snapshots of a rank (worker/engine/snapshots.h) in a folder of its own, each written as a
// checkpoint of its layers. A process that is started again in the same pod finds there what its
// predecessor held. The folder lies in memory, if it is that of the operator. Trouble with it costs
// snapshots, never a step.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "worker/base/clock.h"
#include "worker/base/settings.h"
#include "worker/checkpoint/disk.h"
#include "worker/checkpoint/save.h"
#include "worker/checkpoint/writer.h"
#include "worker/engine/snapshots.h"
#include "worker/protocol/messages.h"
#include "worker/stage/stage.h"

namespace weir::app {

class Snapshots final : public engine::Snapshots {
 public:
  using Send = std::function<void(const protocol::Message&)>;

  // owner: the job and the pod; settings: of this run. Snapshots of others, and damaged ones, are
  // removed with a warning. The model outlives this object.
  Snapshots(std::string folder, std::string owner, const stage::Model& model, Settings settings);

  // Sets the receiver of SAVED; an empty function means none. Any thread.
  void tell(Send send);

  void take(stage::Stage& stage, schedule::LayerRange layers, std::int64_t step) override;
  void taken_by_all(std::int64_t step, bool all) override;
  Status load(stage::Stage& stage, std::int64_t step) override;
  void await(std::int64_t history, std::int64_t start) override;
  void begin(std::int64_t history, std::int64_t start) override;
  void runs(std::uint32_t revision, int incarnation) override;
  protocol::Inventory inventory() const override;

 private:
  struct Kept {
    std::int64_t step = 0;
    schedule::LayerRange layers;
  };
  // To which histories the snapshots belong: engine::Snapshots::await().
  struct Histories {
    std::int64_t begun = 0, awaited = 0, start = 0;
    std::int64_t revision = 0, incarnation = 0;  // of the last plan
  };

  void find();
  std::string refusal_of(const checkpoint::Manifest& manifest) const;
  void read_histories();
  void write_histories();
  struct Order {
    std::int64_t step = 0;
    schedule::LayerRange layers;
    SteadyTime since{};
    double copy_seconds = 0;
    bool beside = false;  // writing takes no processor from training
  };
  Status write(const Order& order, std::vector<checkpoint::LayerImage>& images);
  // Forgets these snapshots, and one that is being written; the files are to be removed.
  std::vector<std::int64_t> forget(const std::function<bool(std::int64_t step)>& which);
  void remove(const std::vector<std::int64_t>& steps);
  void remove_later(std::vector<std::int64_t> steps);
  void say(const protocol::Message& message);
  void say_saved(std::int64_t step, const std::string& error, double seconds = 0);

  const std::string folder_, owner_;
  const stage::Model& model_;
  const Settings settings_;
  std::mutex send_mutex_;  // guards send_
  Send send_;
  Histories histories_;       // engine thread
  mutable std::mutex mutex_;  // guards the two below
  std::vector<Kept> kept_;    // oldest first
  std::optional<std::int64_t> writing_;
  checkpoint::Disk disk_;
  checkpoint::Writer writer_;
};

}  // namespace weir::app
