// SPDX-License-Identifier: Apache-2.0
// Connects the room checkpoint with engine, agent and coordinator: copies on the engine thread,
// writes and commits on the checkpoint thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "worker/app/steps.h"
#include "worker/checkpoint/disk.h"
#include "worker/checkpoint/save.h"
#include "worker/checkpoint/writer.h"
#include "worker/coordinator/checkpoints.h"
#include "worker/protocol/messages.h"
#include "worker/stage/stage.h"

namespace weir::app {

class Checkpoints {
 public:
  using Send = std::function<void(const protocol::Message&)>;
  using Written = std::function<void(std::chrono::nanoseconds)>;

  // job: the owner of the checkpoints, "" = none. settings: of this run, stored in its checkpoints.
  // The model outlives this object.
  Checkpoints(std::string folder, std::string job, const stage::Model& model, Settings settings)
      : folder_(std::move(folder)),
        job_(std::move(job)),
        model_(model),
        settings_(std::move(settings)) {}

  // Sets the receiver of SAVED; an empty function means none. Any thread.
  void tell(Send send);

  // Engine thread. Returns after the copy. SAVED is sent when the files are on disk. One save at a
  // time: no plan accounts for the memory of a second copy.
  void save(stage::Stage& stage, std::int64_t step, const std::function<bool(int layer)>& mine,
            const Written& written);
  Status load(stage::Stage& stage, std::int64_t step) const;
  bool writing() const { return writing_; }  // any thread

  // Any thread; `done` is called on the checkpoint thread. guard: `may` is called before a commit
  // and returns whether the folder still belongs to this worker. Call this before the first commit.
  void guard(std::function<Status()> may);
  void commit(const coordinator::CheckpointOrder& order,
              std::function<void(coordinator::SaveResult)> done);
  void remove(const coordinator::CheckpointRemoval& removal, std::function<void()> done);

 private:
  protocol::Saved write(std::int64_t step, const std::vector<checkpoint::LayerImage>& images,
                        SteadyTime start, const Written& written);
  void say(const protocol::Message& message);
  Status may_commit() const;

  const std::string folder_, job_;
  const stage::Model& model_;
  const Settings settings_;
  std::mutex send_mutex_;  // guards send_
  Send send_;
  mutable std::mutex guard_mutex_;  // guards guard_
  std::function<Status()> guard_ = [] { return Status(Unit{}); };
  std::atomic<bool> writing_{false};  // a copy has not been written yet
  checkpoint::Disk disk_;             // used by the checkpoint thread
  checkpoint::Writer writer_;
};

// Runs before this worker coordinates: makes the folder, takes its lock, finds checkpoints and
// removes leftovers of killed saves. Fails with exit code 2 if the folder cannot be used or belongs
// to another job, model or run (agreement.h), and with 83 if it has checkpoints but no complete
// one.
std::optional<Failure> find_checkpoints(State& state);

}  // namespace weir::app
