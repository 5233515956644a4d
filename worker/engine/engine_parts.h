// SPDX-License-Identifier: Apache-2.0
// What an engine is made of and what it says at its end: settings, the rooms it works with, hooks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "worker/base/clock.h"
#include "worker/base/result.h"
#include "worker/data/dataset.h"
#include "worker/device/device.h"
#include "worker/engine/plan_rules.h"
#include "worker/engine/received_rates.h"
#include "worker/engine/statistics.h"
#include "worker/engine/validation.h"
#include "worker/stage/stage.h"
#include "worker/transport/collective.h"
#include "worker/transport/communicator.h"
#include "worker/transport/state_exchange.h"

namespace weir::engine {

struct Settings {
  std::string job_uid, job_key;  // of the handshake on 7071; the key is raw
  Identity identity;
  std::string node;
  std::int64_t total_steps = 0;
  // Until the first plan, while out of touch with those that make plans (Hooks::in_touch).
  std::chrono::nanoseconds startup_timeout{std::chrono::seconds(900)};
  std::chrono::nanoseconds connect_timeout{std::chrono::seconds(60)};
  // Longest wait without any message of a peer: a hang (spec.progressDeadlineSeconds).
  std::chrono::nanoseconds progress_deadline{std::chrono::seconds(1800)};
  std::chrono::nanoseconds rejoin_timeout{std::chrono::seconds(900)};  // likewise
  int diverged_after = 10;  // so many skipped steps in a row end training; 0 = never
  double grad_clip = 0;     // largest global norm of the gradients, the same on all ranks; 0 = none
  Validation validation;
  bool saves = false;  // a coordinator orders checkpoints, that of the last step too
};

using Connect = std::function<Result<std::unique_ptr<transport::Communicator>>(
    const transport::Generation&, std::chrono::steady_clock::time_point deadline, std::stop_token)>;
using ConnectGroup = std::function<Result<std::unique_ptr<transport::Collective>>(
    const transport::GroupGeneration&, std::chrono::steady_clock::time_point deadline,
    std::stop_token)>;
using MakeStage =
    std::function<Result<std::unique_ptr<stage::Stage>>(int first_layer, int last_layer)>;

// What the engine works with; all of it outlives the engine.
struct Parts {
  const stage::Model& model;
  device::Device& device;
  const data::Dataset& dataset;
  const Clock& clock;
  Connect connect;
  MakeStage make_stage;
  ConnectGroup connect_group = nullptr;  // of replicas; null: plans with several cannot be entered
  const data::Dataset* validation = nullptr;  // what validation reads; there if it has an interval
  std::shared_ptr<stage::Lateness> lateness;  // of emulated compute; null without

  // Checkpoints; all may be empty. load: kInvalid = that checkpoint is damaged, kConflict = it is
  // of another model, other codes = it cannot be read here. save: copies what `mine` wants and
  // returns, the rest is done elsewhere. init: values for step 0 instead of random ones.
  std::function<Status(stage::Stage&, std::int64_t step)> load;
  std::function<void(stage::Stage&, std::int64_t step, const std::function<bool(int layer)>& mine)>
      save;
  std::function<Status(stage::Stage&)> init;
  transport::StateExchange* state = nullptr;  // null: plans that move state cannot be entered
};

// Called from the engine thread; must not block.
struct Hooks {
  std::function<void(const StepRecord&)> step_done;
  // After so many steps, by the last stage of a replica; may be null.
  std::function<void(int replica, std::int64_t step, double loss)> validated;
  // The plan `revision` is in force from step `step` on (APPLIED).
  std::function<void(std::uint32_t revision, std::int64_t step)> adopted;
  std::function<void(std::uint32_t revision, int replica, int stage, const std::string& reason)>
      peer_lost;
  std::function<void(std::int64_t step, std::int64_t at)> save_late;  // no state of `step` any more
  std::function<void(std::int64_t step, const std::string& reason)> bad_checkpoint;
  // Partial: that replica is done with its step but for the average; `step` completed ones, this
  // one counted, in so many seconds. The average after the step before, if it had one.
  // Null: plans with Partial are refused.
  std::function<void(int replica, std::int64_t step, double seconds, const AverageReport& last)>
      sync_ready = nullptr;
  // Partial: this rank of that replica keeps its model and goes on without the average of that
  // round; `missing` did not come, -1: not known.
  std::function<void(int replica, std::int64_t round, int missing, const std::string& reason)>
      round_failed = nullptr;
  // So many bytes came from other ranks for that plan; before its COMMIT is answered.
  std::function<void(std::uint32_t revision, std::int64_t bytes)> moved;
  // Those that make plans answer: this rank waits for a plan without a limit. Null: never.
  std::function<bool()> in_touch = nullptr;
};

enum class Why : unsigned char {
  kFinished,     // all steps are done
  kLeft,         // leave() was called
  kStopped,      // the stop token of run()
  kPeerLost,     // and no new plan within rejoin_timeout
  kNoPlan,       // none within startup_timeout
  kOutOfMemory,  // the device has no memory left
  kDataGone,     // the data that is trained on has changed, or cannot be read any more
  kCheckpoint,   // it cannot be read, or the last one was not saved
  kDiverged,     // too many steps in a row without a finite loss and gradient
  kBadStart,     // the values to begin with cannot be loaded, or are of another model
};
struct Ending {
  Why why = Why::kFinished;
  std::string message;
};

}  // namespace weir::engine
