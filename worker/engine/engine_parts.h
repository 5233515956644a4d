// SPDX-License-Identifier: Apache-2.0
// Parts of an engine: options, the rooms that it works with, callbacks, and its result.
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
#include "worker/engine/boundary_codec.h"
#include "worker/engine/flight_recorder.h"
#include "worker/engine/mailbox.h"
#include "worker/engine/plan_rules.h"
#include "worker/engine/snapshots.h"
#include "worker/engine/statistics.h"
#include "worker/engine/validation.h"
#include "worker/protocol/exit_codes.h"
#include "worker/stage/stage.h"
#include "worker/transport/collective.h"
#include "worker/transport/communicator.h"
#include "worker/transport/state_exchange.h"

namespace weir::engine {

struct Options {
  std::string job_uid, job_key;  // for the handshake on port 7071; the key is raw bytes
  Identity identity;
  std::string node;
  std::int64_t total_steps = 0;
  // Wait for the first plan while nobody makes plans (Callbacks::in_touch is false).
  std::chrono::nanoseconds startup_timeout{std::chrono::seconds(900)};
  std::chrono::nanoseconds connect_timeout{std::chrono::seconds(60)};
  // Longest wait without a message from a peer: longer means a hang (spec.progressDeadlineSeconds).
  std::chrono::nanoseconds progress_deadline{std::chrono::seconds(1800)};
  // Wait for a new plan, as startup_timeout.
  std::chrono::nanoseconds rejoin_timeout{std::chrono::seconds(900)};
  int diverged_after = 10;  // number of skipped steps in a row that ends training; 0 = never
  double grad_clip = 0;  // largest global norm of the gradients, equal on all ranks; 0 = no limit
  std::size_t flight_events = FlightRecorder::kEvents;  // that are kept; 0 = nothing is recorded
  Validation validation;
  bool saves = false;         // a coordinator orders checkpoints, including one of the last step
  bool needs_copies = false;  // plans without memory for snapshots and a neighbor's are refused
};

using Connect = std::function<Result<std::unique_ptr<transport::Communicator>>(
    const transport::Generation&, std::chrono::steady_clock::time_point deadline, std::stop_token)>;
using ConnectReplicaGroup = std::function<Result<std::unique_ptr<transport::Collective>>(
    const transport::ReplicaGroupGeneration&, std::chrono::steady_clock::time_point deadline,
    std::stop_token)>;
using MakeStage = std::function<Result<std::unique_ptr<stage::Stage>>(
    int first_layer, int last_layer, stage::Initial initial)>;

// The rooms that the engine works with. All outlive the engine.
struct Parts {
  const stage::Model& model;
  device::Device& device;
  const data::Dataset& dataset;
  const Clock& clock;
  Connect connect;
  MakeStage make_stage;
  // For replicas; null: plans with several replicas cannot be entered.
  ConnectReplicaGroup connect_replica_group = nullptr;
  const data::Dataset* validation = nullptr;  // data of the validation; set if it has an interval
  // The kernels that encode tensors between stages; null: those of the device.
  BoundaryCodec::MakeKernels make_kernels = nullptr;
  // Lateness of emulated compute; null without emulation.
  std::shared_ptr<stage::Lateness> lateness;

  // Checkpoints; all may be empty. load: kInvalid = the checkpoint is damaged, kConflict = it is of
  // another model, other codes = it cannot be read on this machine. save: copies the layers that
  // `mine` selects and returns; writing happens elsewhere. init: sets the values of step 0 instead
  // of random ones.
  std::function<Status(stage::Stage&, std::int64_t step)> load;
  std::function<void(stage::Stage&, std::int64_t step, const std::function<bool(int layer)>& mine)>
      save;
  std::function<Status(stage::Stage&)> init;
  Snapshots* snapshots = nullptr;             // null: this worker takes none
  transport::StateExchange* state = nullptr;  // null: plans that move state cannot be entered
  // Times the layers on scratch data until `stop`; the answer holds profile.json or an error. Null:
  // this worker cannot measure.
  std::function<protocol::Measured(const protocol::Measure&, std::stop_token stop)> measure;
};

// Called from the engine thread; must not block.
struct Callbacks {
  std::function<void(const StepRecord&)> step_done;
  // The validation loss after `step` completed steps, on the last stage of a replica. May be null.
  std::function<void(int replica, std::int64_t step, double loss)> validated;
  Mailbox::Send send = nullptr;  // null: there is no coordinator
  // True if the operator answers: then this rank waits for a plan without a limit. Null: never.
  std::function<bool()> in_touch = nullptr;
};

using protocol::Exit;

struct Ending {
  Exit exit = Exit::kFinished;
  std::string message;
};

}  // namespace weir::engine
