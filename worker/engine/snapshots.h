// SPDX-License-Identifier: Apache-2.0
// Copies of a rank's state after some steps, in memory that outlives its process. The coordinator
// decides of which step they are taken (worker/coordinator/snapshot_rounds.h), and a process that
// is started again tells them in its HELLO. Engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/base/result.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/plan.h"
#include "worker/stage/stage.h"
#include "worker/transport/state_exchange.h"

namespace weir::engine {

// Layers in host memory, for other ranks to fetch.
struct StoredLayers {
  std::vector<transport::LayerMemory> memory;
  std::shared_ptr<const void> keeps;  // owns that memory
};

class Snapshots {
 public:
  virtual ~Snapshots() = default;

  // Returns after the copy. SAVED is sent when the snapshot is complete, or with the reason why
  // there is none. Only the newest older one stays.
  // compressed_steps: protocol::Held.
  virtual void take(stage::Stage& stage, schedule::LayerRange layers, std::int64_t step,
                    std::int64_t compressed_steps) = 0;
  // Fetches the snapshot of another rank, while training goes on. SAVED is sent when it is
  // complete, or with the reason why it is not. beside: this takes no processor from training.
  virtual void copy(const protocol::Save& order, bool beside) = 0;
  // The coordinator's SAVED: all ranks have theirs of this step, or not all. It is about copies,
  // too.
  virtual void taken_by_all(std::int64_t step, bool all) = 0;
  // Loads values and moments of the stage's layers. After an error the stage has unspecified
  // values, and the snapshot is gone.
  virtual Status load(stage::Stage& stage, std::int64_t step) = 0;
  // The copy of these layers of another rank. After an error it is gone.
  virtual Result<StoredLayers> copied(schedule::LayerRange layers, std::int64_t step) = 0;

  // A generation of that history is to begin with the state after `start` steps. Snapshots up to
  // there belong to both histories until it has begun. Later ones then go.
  virtual void await(std::int64_t history, std::int64_t start) = 0;
  virtual void begin(std::int64_t history, std::int64_t start) = 0;
  // The plan in force.
  virtual void runs(std::uint32_t revision, int incarnation) = 0;
  // The snapshots and copies, the highest history that has begun, and the last plan in force.
  virtual protocol::Inventory inventory() const = 0;
};

}  // namespace weir::engine
