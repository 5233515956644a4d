// SPDX-License-Identifier: Apache-2.0
// Experiments E1, E2, E3, E4, E7 on real workers: S=4, M=32, f=10 ms, b=20 ms; which plans over
// which links, and what the simulator says.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "tests/multiproc/workers.h"
#include "worker/schedule/simulator.h"

namespace weir::bench {

constexpr int kStages = 4, kMicroBatches = 32, kWarmUp = 3;
constexpr double kForward = 10, kBackward = 20;  // ms, of a stage
constexpr double kIdeal = (kMicroBatches + kStages - 1) * (kForward + kBackward);

// ms of one micro-batch over each link: forward, backward.
using LinkTimes = std::array<std::array<double, 2>, kStages - 1>;

struct Case {
  std::string experiment, plan;  // a name of tests/worker/schedule/plans_by_name.h
  std::array<double, 3> c{};     // ms, of one micro-batch over each link, in either direction
  bool bursts = false;           // what each worker sends is preempted at random (E7)
  std::optional<int> window;     // sends hold up a stage with more on their way (E4)
  int tokens = 64;               // of a sample: a message has 1 KiB per token
  std::optional<LinkTimes> measured = std::nullopt;  // instead of c, for the simulator

  std::string links() const;  // "c=5", "c=2.5,25,2.5", "c=20 window=1"
  double message_bytes() const;
};
std::vector<Case> cases_of(const std::string& experiment);  // or "all"

schedule::PipelineModel model_of(const Case& one);
// Milliseconds: of one step; with bursts of each of `steps` steps after warming up.
std::vector<double> simulated(const Case& one, int steps);

// Share .25 half of the time, mean 160 ms, of one worker's sends.
schedule::RateTrace burst_trace(int worker);

test::PlanText plan_text(const std::string& plan, const Case& one);
// Of the worker: limits of the links it sends on in user space. folder: where a trace may be
// written.
std::vector<std::string> pacing(const Case& one, int worker, const test::TempDir& folder);
// Emulated compute.
std::vector<std::string> common_arguments(int steps, const std::string& profile_file,
                                          int tokens = 64);
std::string profile();
constexpr double kMessageBytes = 2.0 * 64 * 128 * 4;  // 2 samples of mlp, 64 tokens, 128 floats

}  // namespace weir::bench
