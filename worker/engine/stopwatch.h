// SPDX-License-Identifier: Apache-2.0
// Books all time of the engine thread. Each place that runs or waits ends with a lap, which books
// what has run since the lap before, so nothing is lost between two places and the parts of a step
// add up to its time. A lap reads the clock once. Engine thread only.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "worker/base/clock.h"
#include "worker/engine/statistics.h"
#include "worker/protocol/step_part.h"
#include "worker/transport/communicator.h"

namespace weir::engine {

using protocol::StepPart;
using PartTimes = std::array<std::chrono::nanoseconds, protocol::kStepParts>;

class Stopwatch {
 public:
  // The references outlive the object.
  Stopwatch(const Clock& clock, Recorder& recorder)
      : clock_(clock), recorder_(recorder), last_(clock.now()) {}

  // Ends a part and returns how long it took.
  std::chrono::nanoseconds lap(StepPart part) {
    const std::chrono::nanoseconds took = move_on();
    book(part, took);
    return took;
  }
  // The time of the last lap; valid until letters are taken (cut_out).
  SteadyTime last() const { return last_; }

  // Ends a piece of a wait of which the next op is not known yet, and tells which inputs were there
  // during the piece. settle() books all such pieces by the op that has become ready.
  std::chrono::nanoseconds wait_lap(bool had_activations, bool had_gradients) {
    const SteadyTime begin = last_;
    const std::chrono::nanoseconds took = move_on();
    pieces_.push_back({begin, last_, had_activations, had_gradients});
    return took;
  }
  // input: the transfer of what this op, a forward or a backward, has waited for. A wait is late
  // until the link begins to carry the input, and other behind its end: the rank wakes up. With the
  // input there, the op lacked room in its send window: it waited for the peer until the message
  // whose acknowledgement made room (`opening`) had a slot, then for the link. Returns how long the
  // wait was.
  std::chrono::nanoseconds settle(bool forward, const std::optional<transport::Transfer>& input,
                                  const std::optional<transport::Transfer>& opening) {
    const StepPart late = forward ? StepPart::kForwardLate : StepPart::kGradientLate;
    const StepPart link = forward ? StepPart::kForwardLink : StepPart::kGradientLink;
    std::chrono::nanoseconds waited{0};
    for (const Piece& piece : pieces_) {
      waited += piece.end - piece.begin;
      if (forward ? piece.had_activations : piece.had_gradients) {
        divide(piece, opening, StepPart::kFullPeer, StepPart::kFullLink);
      } else {
        divide(piece, input, late, link);
      }
    }
    pieces_.clear();
    return waited;
  }

  // Books what has run since `start` in the middle of another part, which goes on: letters may be
  // taken, and a save copied, while the rank waits.
  void cut_out(StepPart part, SteadyTime start) {
    const std::chrono::nanoseconds took = clock_.now() - start;
    book(part, took);
    last_ += took;
  }

  // Begins anew: what has run since the last lap, and what was booked since take(), is of no step.
  void restart() {
    move_on();
    times_ = {};
    pieces_.clear();
  }
  // The parts since the last call.
  PartTimes take() {
    settle(true, std::nullopt, std::nullopt);  // of a step that was dropped
    return std::exchange(times_, {});
  }

 private:
  static std::chrono::nanoseconds& at(PartTimes& times, StepPart part) {
    return times[static_cast<std::size_t>(part)];
  }
  std::chrono::nanoseconds move_on() {
    const SteadyTime now = clock_.now();
    return now - std::exchange(last_, now);
  }
  void book(StepPart part, std::chrono::nanoseconds took) {
    at(times_, part) += took;
    recorder_.booked(part, took);
  }

  struct Piece {
    SteadyTime begin{}, end{};
    bool had_activations = false, had_gradients = false;
  };
  // Books a piece of a wait by what the awaited message did meanwhile; all of it to `before` where
  // the transport does not tell.
  void divide(const Piece& piece, const std::optional<transport::Transfer>& transfer,
              StepPart before, StepPart link) {
    const SteadyTime begins =
        transfer ? std::clamp(transfer->begin, piece.begin, piece.end) : piece.end;
    const SteadyTime ends = transfer ? std::clamp(transfer->end, begins, piece.end) : piece.end;
    book(before, begins - piece.begin);
    if (ends > begins) book(link, ends - begins);
    if (piece.end > ends) book(StepPart::kOther, piece.end - ends);
  }

  const Clock& clock_;
  Recorder& recorder_;
  SteadyTime last_;
  PartTimes times_{};
  std::vector<Piece> pieces_;  // of the wait under way
};

}  // namespace weir::engine
