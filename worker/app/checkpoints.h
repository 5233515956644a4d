// SPDX-License-Identifier: Apache-2.0
// Joins the room checkpoint with engine, agent and coordinator: copies on the engine's thread,
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

  // job: whose checkpoints these are, "" = nobody's. settings: of the run, for later ones. model
  // outlives this object.
  Checkpoints(std::string folder, std::string job, const stage::Model& model, Settings settings)
      : folder_(std::move(folder)),
        job_(std::move(job)),
        model_(model),
        settings_(std::move(settings)) {}

  // Whom SAVED goes to; empty: nobody any more. Any thread.
  void tell(Send send);

  // Engine thread. Returns after the copy; SAVED is told when the files lie on disk. One at a time:
  // a second copy would be memory that no plan counts.
  void save(stage::Stage& stage, std::int64_t step, const std::function<bool(int layer)>& mine,
            const Written& written);
  Status load(stage::Stage& stage, std::int64_t step) const;
  bool writing() const { return writing_; }  // any thread

  // Any thread; done is called from the checkpoint thread. may: asked before a commit whether the
  // folder is still this job's.
  void guard(std::function<Status()> may) { may_commit_ = std::move(may); }  // before the first one
  void commit(const coordinator::CheckpointOrder& order,
              std::function<void(coordinator::SaveResult)> done);
  void remove(const coordinator::CheckpointRemoval& removal, std::function<void()> done);

 private:
  protocol::Saved write(std::int64_t step, const std::vector<checkpoint::LayerImage>& images,
                        SteadyTime start, const Written& written);
  void say(const protocol::Message& message);

  const std::string folder_, job_;
  const stage::Model& model_;
  const Settings settings_;
  std::mutex send_mutex_;  // guards send_
  Send send_;
  std::function<Status()> may_commit_ = [] { return Status(Unit{}); };
  std::atomic<bool> writing_{false};  // a copy is not written yet
  checkpoint::Disk disk_;             // checkpoint thread
  checkpoint::Writer writer_;
};

// Worker 0, before it coordinates: makes the folder, takes its lock, finds what is there, removes
// what killed saves have left. Exit code 2 for a folder that cannot be used or is of another job,
// model or run (agreement.h), 83 when there are checkpoints but no whole one.
std::optional<Failure> find_checkpoints(State& state);

}  // namespace weir::app
