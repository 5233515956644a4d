// SPDX-License-Identifier: Apache-2.0
// Experiments E1, E2, E3, E4, E7, E13, E14 on real workers: f=10 ms, b=20 ms, and but for some of
// E13 S=4, M=32; which plans over which links, and what the simulator says.
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
using LinkTimes = std::vector<std::array<double, 2>>;

struct Case {
  std::string experiment, plan;  // a name of tests/worker/schedule/plans_by_name.h
  std::vector<double> c;         // ms, of one micro-batch over each link, in either direction
  bool bursts = false;           // what each worker sends is preempted at random (E7)
  std::optional<int> window;     // sends hold up a stage with more on their way (E4)
  int tokens = 64;               // of a sample: a message has 1 KiB per token
  std::optional<LinkTimes> measured = std::nullopt;  // instead of c, for the simulator
  // ms between the end of an op and the start of the next stage's, beside the transfer; for the
  // simulator alone, as plans of jobs take the measured latency of links.
  double hop = 0;
  int micro_batches = kMicroBatches;
  schedule::Codec codec = schedule::Codec::kRaw;  // of the slowest links, in both directions

  bool split() const { return plan.find('+') != std::string::npos; }
  int stages() const { return static_cast<int>(c.size()) + 1; }
  // "c=5", "c=2.5,25,2.5", "c=20 window=1", "S=8 M=16 c=5"
  std::string links() const;
  double message_bytes() const;  // raw
  double wire_bytes(std::size_t link) const;
};
std::vector<Case> cases_of(const std::string& experiment);  // or "all"

// One micro-batch through so many stages that nothing limits: its step is the ops' and each hop's.
Case lone_micro_batch(int stages);
// Of a step of that, in ms.
double hop_of(double step, int stages);

schedule::PipelineModel model_of(const Case& one);
// Milliseconds: of one step; with bursts of each of `steps` steps after warming up.
std::vector<double> simulated(const Case& one, int steps);

// The least and the most that an engine may take whose ops are up to 1 % longer, each stage's by
// its own part, and each of whose links has between half and one and a half of `hop`: where times
// of ops and links have a common divisor, ops and messages end together, and an order that is
// chosen while it runs goes one way or the other.
std::array<double, 2> simulated_range(const Case& one);

// Share .25 half of the time, mean 160 ms, of one worker's sends.
schedule::RateTrace burst_trace(int worker);

test::PlanText plan_text(const std::string& plan, const Case& one);
// Of the worker: limits of the links it sends on in user space. folder: where a trace may be
// written.
std::vector<std::string> pacing(const Case& one, int worker, const test::TempDir& folder);
// Emulated compute.
std::vector<std::string> common_arguments(int steps, const std::string& profile_file,
                                          int tokens = 64);
std::string profile(int stages = kStages);
constexpr double kMessageBytes = 2.0 * 64 * 128 * 4;  // 2 samples of mlp, 64 tokens, 128 floats

}  // namespace weir::bench
