// SPDX-License-Identifier: Apache-2.0
// Books all time of the engine thread. Each place that runs or waits ends with a lap, which books
// what has run since the lap before, so nothing is lost between two places and the parts of a step
// add up to its time. A lap reads the clock once. The flight recorder gets each interval, and each
// op as a whole. Engine thread only.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>
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
  // The references outlive the object; `flight` may be null.
  Stopwatch(const Clock& clock, Recorder& recorder, FlightRecorder* flight = nullptr)
      : clock_(clock), recorder_(recorder), flight_(flight), last_(clock.now()) {}

  // Times booked from now on belong to this step, completed steps being counted from 0, and to
  // no micro-batch.
  void at_step(std::int64_t step) {
    if (flight_ == nullptr) return;
    flight_->at_step(static_cast<std::uint32_t>(step));
    flight_->at_micro_batch(timeline::kNoMicroBatch);
  }
  // Begins at the last lap, for a micro-batch or for none: for readers of the recorder, which books
  // by ends.
  void begin_part(StepPart part, int micro_batch = timeline::kNoMicroBatch) {
    if (flight_ == nullptr) return;
    flight_->begin_part(part, static_cast<std::uint16_t>(micro_batch), count(last_));
  }
  // An op is ready: the wait before it, and what it does up to end_op, are those of its
  // micro-batch.
  void begin_op(int micro_batch) {
    if (flight_ != nullptr) flight_->at_micro_batch(static_cast<std::uint16_t>(micro_batch));
  }
  // The op, from `start` to the last lap.
  void end_op(schedule::OpKind kind, SteadyTime start) {
    if (flight_ == nullptr) return;
    flight_->add(timeline::EventKind::kOp, static_cast<std::uint8_t>(kind), count(start),
                 count(last_));
    flight_->at_micro_batch(timeline::kNoMicroBatch);
  }

  // Ends a part and returns how long it took.
  std::chrono::nanoseconds lap(StepPart part) {
    const std::chrono::nanoseconds took = cut_off();
    for (const Span& span : spans_) book(part, span);
    spans_.clear();
    return took;
  }
  // The time of the last lap; valid until letters are taken (cut_out).
  SteadyTime last() const { return last_; }

  // Ends a piece of a wait of which the next op is not known yet, and tells which inputs were there
  // during the piece. settle() books all such pieces by the op that has become ready.
  std::chrono::nanoseconds wait_lap(bool had_activations, bool had_gradients) {
    const std::chrono::nanoseconds took = cut_off();
    for (const Span& span : spans_) pieces_.push_back({span, had_activations, had_gradients});
    spans_.clear();
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
      waited += piece.span.length();
      if (forward ? piece.had_activations : piece.had_gradients) {
        divide(piece.span, opening, StepPart::kFullPeer, StepPart::kFullLink);
      } else {
        divide(piece.span, input, late, link);
      }
    }
    pieces_.clear();
    return waited;
  }

  // Books what has run since `start` in the middle of another part, which goes on: letters may be
  // taken, and a save copied, while the rank waits.
  void cut_out(StepPart part, SteadyTime start) {
    if (start > last_) spans_.push_back({last_, start});
    last_ = clock_.now();
    book(part, {start, last_});
  }

  // Begins anew: what has run since the last lap, and what was booked since take(), is of no step.
  void restart() {
    last_ = clock_.now();
    times_ = {};
    spans_.clear();
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
  static std::int64_t count(SteadyTime time) { return time.time_since_epoch().count(); }

  struct Span {
    SteadyTime begin{}, end{};
    std::chrono::nanoseconds length() const { return end - begin; }
  };
  struct Piece {
    Span span;
    bool had_activations = false, had_gradients = false;
  };

  // Ends the spans since the last lap. Returns how long they are together.
  std::chrono::nanoseconds cut_off() {
    const SteadyTime now = clock_.now();
    spans_.push_back({std::exchange(last_, now), now});
    std::chrono::nanoseconds took{0};
    for (const Span& span : spans_) took += span.length();
    return took;
  }
  void book(StepPart part, const Span& span) {
    at(times_, part) += span.length();
    recorder_.booked(part, span.length());
    if (flight_ == nullptr) return;
    flight_->add(timeline::EventKind::kPart, static_cast<std::uint8_t>(part), count(span.begin),
                 count(span.end));
  }

  // Books a piece of a wait by what the awaited message did meanwhile; all of it to `before` where
  // the transport does not tell.
  void divide(const Span& piece, const std::optional<transport::Transfer>& transfer,
              StepPart before, StepPart link) {
    const SteadyTime begins =
        transfer ? std::clamp(transfer->begin, piece.begin, piece.end) : piece.end;
    const SteadyTime ends = transfer ? std::clamp(transfer->end, begins, piece.end) : piece.end;
    book(before, {piece.begin, begins});
    if (ends > begins) book(link, {begins, ends});
    if (piece.end > ends) book(StepPart::kOther, {ends, piece.end});
  }

  const Clock& clock_;
  Recorder& recorder_;
  FlightRecorder* flight_;
  SteadyTime last_;
  PartTimes times_{};
  std::vector<Span> spans_;    // since the last lap, around what was cut out
  std::vector<Piece> pieces_;  // of the wait under way
};

}  // namespace weir::engine
