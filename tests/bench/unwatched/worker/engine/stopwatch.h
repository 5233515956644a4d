// SPDX-License-Identifier: Apache-2.0
// Takes the place of worker/engine/stopwatch.h in a worker whose engine books nothing
// (stopwatch_bench.cpp). It has the members of the real one in their order, because the rest of the
// worker is compiled with that. What begins at the last lap begins now.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "worker/base/clock.h"
#include "worker/engine/flight_recorder.h"
#include "worker/engine/statistics.h"
#include "worker/protocol/step_part.h"
#include "worker/schedule/dispatch.h"
#include "worker/transport/communicator.h"

namespace weir::engine {

using protocol::StepPart;
using PartTimes = std::array<std::chrono::nanoseconds, protocol::kStepParts>;

class Stopwatch {
 public:
  Stopwatch(const Clock& clock, Recorder& recorder, FlightRecorder* flight = nullptr)
      : clock_(clock), recorder_(recorder), flight_(flight), last_(clock.now()) {}

  void at_step(std::int64_t) {}
  void begin_part(StepPart, int = 0) {}
  void begin_op(int) {}
  void end_op(schedule::OpKind, SteadyTime) {}

  std::chrono::nanoseconds lap(StepPart) { return {}; }
  SteadyTime last() const { return clock_.now(); }
  std::chrono::nanoseconds wait_lap(bool, bool) { return {}; }
  std::chrono::nanoseconds settle(bool, const std::optional<transport::Transfer>&,
                                  const std::optional<transport::Transfer>&) {
    return {};
  }
  void cut_out(StepPart, SteadyTime) {}
  void restart() {}
  PartTimes take() { return {}; }

 private:
  const Clock& clock_;
  [[maybe_unused]] Recorder& recorder_;
  [[maybe_unused]] FlightRecorder* flight_;
  [[maybe_unused]] SteadyTime last_;
  [[maybe_unused]] PartTimes times_{};
  struct Span {
    SteadyTime begin{}, end{};
  };
  std::vector<Span> spans_;
  struct Piece {
    Span span;
    bool had_activations = false, had_gradients = false;
  };
  std::vector<Piece> pieces_;
};

}  // namespace weir::engine
