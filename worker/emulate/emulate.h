// SPDX-License-Identifier: Apache-2.0
// Compute, sends, data and copies of another device, for timing on few cores: the work of a stage
// is done, then it sleeps until the time that a profile gives for it is over.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "worker/base/result.h"
#include "worker/data/dataset.h"
#include "worker/emulate/options.h"
#include "worker/emulate/profile_times.h"
#include "worker/emulate/slowness.h"
#include "worker/stage/stage.h"
#include "worker/transport/communicator.h"

namespace weir::emulate {

class Emulation {
 public:
  // Errors name the option and the file.
  static Result<Emulation> open(const Options& options, const stage::Model& model);

  const ProfileTimes& times() const { return times_; }
  // The engine takes what all stages have added.
  const std::shared_ptr<stage::Lateness>& lateness() const { return lateness_; }
  // A stage of layers first..last that takes as long as the profile says.
  std::unique_ptr<stage::Stage> around(std::unique_ptr<stage::Stage> stage, int first_layer,
                                       int last_layer) const;

 private:
  Emulation(ProfileTimes times, stage::Precision precision)
      : times_(std::move(times)), precision_(precision) {}

  ProfileTimes times_;
  std::optional<Slowness> slowness_;
  stage::Precision precision_;
  bool idle_ = false;
  std::shared_ptr<stage::Lateness> lateness_ = std::make_shared<stage::Lateness>();
};

// Sends that block the engine, like those of a framework on its compute stream. They show the gain
// of asynchronous sends (worker/schedule/README.md "Credits"). send() returns once at most
// `send_window` messages of its channel are under way, i.e. sent and not yet received completely by
// the peer, or once the generation is broken. With 0 every send blocks.
std::unique_ptr<transport::Communicator> around(std::unique_ptr<transport::Communicator> inner,
                                                int send_window);

// A slow disk: each sample takes so much longer to read. Thread-safe like the dataset inside.
std::unique_ptr<data::Dataset> around(std::unique_ptr<data::Dataset> inner,
                                      std::chrono::nanoseconds delay);
// Behind a copy of the state for a checkpoint: it takes so much longer. Blocks.
void delay_copy(std::chrono::nanoseconds delay);

}  // namespace weir::emulate
