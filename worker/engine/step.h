// SPDX-License-Identifier: Apache-2.0
// One step of a plan on one rank: runs the ops that schedule::Dispatcher chooses, passes inputs and
// results through the links and updates the parameters. Engine thread only. The engine decides
// which plan is in force and what a failure means for the job.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <vector>

#include "worker/base/clock.h"
#include "worker/base/result.h"
#include "worker/data/dataset.h"
#include "worker/device/device.h"
#include "worker/engine/boundary_codec.h"
#include "worker/engine/stage_links.h"
#include "worker/engine/state_average.h"
#include "worker/engine/statistics.h"
#include "worker/engine/stopwatch.h"
#include "worker/engine/verdict.h"
#include "worker/protocol/messages.h"
#include "worker/schedule/dispatch.h"
#include "worker/schedule/plan.h"
#include "worker/schedule/step_ids.h"
#include "worker/stage/stage.h"
#include "worker/transport/collective.h"

namespace weir::engine {

// Parts of a step. The references outlive the step.
struct StepParts {
  stage::Stage& stage;
  StageLinks& links;
  BoundaryCodec& codec;
  const data::Dataset& dataset;
  Recorder& recorder;
  Stopwatch& stopwatch;
  const Clock& clock;
  int sequence = 0;                               // T: tokens per sample
  std::chrono::nanoseconds progress_deadline{0};  // longest wait without any message
  // The other replicas of this stage; null if there are none.
  transport::Collective* replicas = nullptr;
  // The stage at the other end of tied tables; null if there are none, or both ends are here.
  transport::Collective* ties = nullptr;
  // Partial only: an average that runs during this step or the next one.
  AverageBeside* beside = nullptr;
  // First stage with replicas: the epoch that this rank would change to before the next step; 0 =
  // none. Called once, at the end of the step.
  std::function<std::uint32_t()> next_epoch;
  // Partial with replicas, last stage: the step is done except for the average, after `seconds`.
  std::function<void(double seconds)> ready_to_average;
  // Waits until `until` for the coordinator's answer for this step; nothing if it has not come.
  // kCancelled: the rank need not wait for it.
  std::function<Result<std::optional<protocol::Grant>>(SteadyTime until)> granted;
  // The round failed on this rank: it keeps its model and continues at the grant's next step.
  // missing: the replica that did not come, -1 = unknown.
  std::function<void(const protocol::Grant& grant, int missing, const std::string& reason)>
      round_failed;
  // Called between ops and about 50 times per second while waiting. Takes letters. False ends the
  // step with kCancelled.
  std::function<bool()> go_on;
  // Exact with replicas: true once another replica is lost. The step then ends with kCancelled
  // where it would need the others. Null: never.
  std::function<bool()> others_lost = nullptr;
};

// Sums of gradients of whole micro-batches that the stage has.
struct Share {
  schedule::Ids ids;
  std::vector<double> losses;  // last stage: by rising id
};

struct StepOrder {
  const schedule::Plan& plan;
  int replica = 0, stage = 0;
  int incarnation = 0;
  std::int64_t step = 0;
  bool header_follows = true;  // the next message is the header of the next step
  double grad_clip = 0;        // largest global norm of the gradients; 0 = no limit
  // The first step after an interrupted one: by replica, what its stages have summed of this step
  // already, and what this stage has. Empty: nothing.
  std::vector<schedule::Ids> kept = {};
  Share own = {};
};

// How far a step has come.
struct StepEnd {
  bool summed = false;   // the stage has all of its gradients of the step
  bool updated = false;  // the parameters are those after the step
  StepRecord record;     // once `summed`, without a loss
  // The step ended where it needed the other replicas: this one's part is done.
  std::optional<Share> share;
};

// Runs the step to its end or fails: kUnavailable (generation broken), kTimeout (no message for
// progress_deadline), kInternal (no device memory), kGone (the data), kNotFound (a token of the
// data in the vocabulary), kCancelled (stop, go_on or others_lost). A group that loses a member
// does not fail the step unless all replicas must meet. After a failure the stage holds gradients
// of the step: all of them if `end` says `summed`, those of its share if it has one.
Result<StepRecord> run_step(const StepParts& parts, const StepOrder& order, std::stop_token stop,
                            StepEnd* end = nullptr);

// The end of a step of a stage that has all of its gradients: clips, updates the parameters, and
// returns true, or leaves them as they are if the verdict allows no update.
bool end_step(stage::Stage& stage, const Verdict& verdict, double grad_clip);

// Waits until `links` receives something. kTimeout if progress_deadline has passed since `since`;
// kUnavailable if the peer that sends on `awaited` has left. for_others: what it waits for depends
// on other replicas.
Status wait_for_peer(const StepParts& parts, SteadyTime since, std::stop_token stop,
                     std::optional<transport::Channel> awaited = std::nullopt,
                     bool for_others = false);

}  // namespace weir::engine
