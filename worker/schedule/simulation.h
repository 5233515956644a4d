// SPDX-License-Identifier: Apache-2.0
// The event loop of the simulator, as a template over the rule that chooses ops. Only files of this
// room include it; others include simulator.h. A Rule has these functions:
//   std::optional<OpKind> next(stage, progress, ready)  the op to start now
//   bool wants_forward(stage, progress)                 whether a waiting stage waits for a forward
//   int held(stage, progress)                           micro-batches that count for the peak
//   bool done(stage, progress)                          whether the step is over on this stage
//   nanoseconds backward(stage), weights(stage)         time of a B and of a W
// Events are ordered by (time, sequence of insertion). The second key decides ties, on which the
// golden vectors depend. Link releases are simulated only if the model has a send window.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "worker/base/check.h"
#include "worker/schedule/simulator.h"

namespace weir::schedule {

template <class Rule>
class Simulation {
 public:
  Simulation(const Rule& rule, int micro_batches, const PipelineModel& model)
      : rule_(rule), model_(model), stages_(model.stages.size()) {
    const std::size_t count = stages_.size();
    WEIR_CHECK(count >= 1 && count < 65536, "a pipeline has stages");
    WEIR_CHECK(model.forward.size() + 1 == count && model.backward.size() + 1 == count,
               "one link of each direction between two stages");
    forward_.reserve(count);
    backward_.reserve(count);
    for (std::size_t b = 0; b + 1 < count; ++b) {
      forward_.push_back({&model.forward[b], model.start.count(), 0, 0});
      backward_.push_back({&model.backward[b], model.start.count(), 0, 0});
    }
    // Room for every transfer being under way at once.
    events_.reserve(count + 4 * count * static_cast<std::size_t>(micro_batches));
    stages_.front().arrived_forward = micro_batches;
    for (StageState& stage : stages_) stage.idle_since = model.start.count();
    timeline_.peak_in_flight.assign(count, 0);
    timeline_.receive_queue_forward.assign(count, 0);
    timeline_.receive_queue_backward.assign(count, 0);
    timeline_.busy.assign(count, std::chrono::nanoseconds(0));
    timeline_.idle.assign(count, Idle{});
  }

  std::optional<Timeline> run() {
    const Ticks start = model_.start.count();
    Ticks last_end = start;
    for (std::size_t s = 0; s < stages_.size(); ++s) try_start(s, start);
    while (!events_.empty()) {
      std::pop_heap(events_.begin(), events_.end(), later);
      const Event event = events_.back();
      events_.pop_back();
      switch (event.kind) {
        case EventKind::kEnd:
          last_end = event.time;
          end(event.place, event.time);
          break;
        case EventKind::kRelease:
          release(event);
          break;
        case EventKind::kArrive:
          arrive(event);
          break;
      }
    }
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      if (!rule_.done(s, stages_[s].progress)) return std::nullopt;
    }
    timeline_.step = std::chrono::nanoseconds(last_end - start);
    return std::move(timeline_);
  }

 private:
  using Ticks = std::chrono::nanoseconds::rep;
  enum class EventKind : unsigned char { kEnd, kRelease, kArrive };

  struct Event {
    Ticks time;
    std::uint32_t sequence;
    EventKind kind;
    bool forward;         // the direction of a link
    std::uint16_t place;  // stage of kEnd, else boundary
  };
  struct LinkState {
    const LinkModel* model = nullptr;
    Ticks free = 0;
    int outstanding = 0;
    std::size_t segment = 0;  // of the trace, at the end of the last transfer
  };
  struct StageState {
    StageProgress progress;
    bool running = false;
    OpKind work = OpKind::kForward;
    LinkState* blocked_by = nullptr;  // the send window that the stage waits for, or null
    int arrived_forward = 0, arrived_backward = 0;
    Ticks idle_since = 0;
  };

  static bool later(const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
  }

  // Returns the time at which the integral of the link's share from `start` on reaches `work`.
  // Transfers of a link start in rising order, so the search continues from the last segment.
  static Ticks finish(LinkState& link, Ticks start, Ticks work) {
    const RateTrace& trace = link.model->trace;
    if (trace.empty() || work <= 0) return start + work;
    std::size_t& next = link.segment;
    if (next == 0) {
      next = static_cast<std::size_t>(std::upper_bound(trace.begin(), trace.end(), start,
                                                       [](Ticks time, const auto& entry) {
                                                         return time < entry.first.count();
                                                       }) -
                                      trace.begin());
    }
    while (next < trace.size() && trace[next].first.count() <= start) ++next;
    double share = next == 0 ? 1.0 : trace[next - 1].second;
    auto left = static_cast<double>(work);
    Ticks now = start;
    while (next < trace.size()) {
      const double room = static_cast<double>(trace[next].first.count() - now) * share;
      if (room >= left) break;
      left -= room;
      now = trace[next].first.count();
      share = trace[next].second;
      ++next;
    }
    return now + static_cast<Ticks>(std::ceil(left / share));
  }

  void push(Ticks time, EventKind kind, bool forward, std::size_t place) {
    events_.push_back({time, sequence_++, kind, forward, static_cast<std::uint16_t>(place)});
    std::push_heap(events_.begin(), events_.end(), later);
  }

  void try_start(std::size_t s, Ticks now) {
    StageState& stage = stages_[s];
    if (stage.running || stage.blocked_by != nullptr) return;
    StageProgress& progress = stage.progress;
    const Ready ready{.forward = stage.arrived_forward > progress.forwards_started,
                      .backward = stage.arrived_backward > progress.backwards_started};
    const std::optional<OpKind> work = rule_.next(s, progress, ready);
    if (!work) return;
    if (now > stage.idle_since) {
      Idle& idle = timeline_.idle[s];
      (rule_.wants_forward(s, progress) ? idle.wait_forward : idle.wait_backward) +=
          std::chrono::nanoseconds(now - stage.idle_since);
    }
    const std::chrono::nanoseconds duration = start(s, *work, progress);
    if (model_.record) record_op(s, *work, progress, now, duration);
    stage.running = true;
    stage.work = *work;
    timeline_.busy[s] += duration;
    push(now + duration.count(), EventKind::kEnd, false, s);
  }

  std::chrono::nanoseconds start(std::size_t s, OpKind work, StageProgress& progress) {
    switch (work) {
      case OpKind::kForward: {
        ++progress.forwards_started;
        int& peak = timeline_.peak_in_flight[s];
        peak = std::max(peak, rule_.held(s, progress));
        return model_.stages[s].forward;
      }
      case OpKind::kBackward:
        ++progress.backwards_started;
        return rule_.backward(s);
      case OpKind::kWeights:
        ++progress.weights_started;
        return rule_.weights(s);
    }
    return {};
  }

  void record_op(std::size_t s, OpKind work, const StageProgress& progress, Ticks now,
                 std::chrono::nanoseconds duration) {
    const std::array<int, kOpKinds> started{progress.forwards_started, progress.backwards_started,
                                            progress.weights_started};
    const std::chrono::nanoseconds begin(now - model_.start.count());
    timeline_.ops.push_back(
        {.stage = static_cast<int>(s),
         .op = {.kind = work, .micro_batch = started[static_cast<std::size_t>(work)] - 1},
         .start = begin,
         .end = begin + duration});
  }

  void end(std::size_t s, Ticks now) {
    StageState& stage = stages_[s];
    stage.running = false;
    stage.idle_since = now;
    switch (stage.work) {
      case OpKind::kForward:
        ++stage.progress.forwards_done;
        if (s + 1 < stages_.size()) {
          send(s, now, forward_[s], true, s);
        } else {
          ++stage.arrived_backward;
        }
        break;
      case OpKind::kBackward:
        ++stage.progress.backwards_done;
        if (s > 0) send(s, now, backward_[s - 1], false, s - 1);
        break;
      case OpKind::kWeights:
        ++stage.progress.weights_done;
        break;
    }
    try_start(s, now);
  }

  void send(std::size_t s, Ticks now, LinkState& link, bool forward, std::size_t boundary) {
    const LinkModel& model = *link.model;
    const Ticks begin = std::max(now, link.free);
    link.free = finish(link, begin, model.transfer.count());
    if (model_.record) {
      const StageProgress& progress = stages_[s].progress;
      timeline_.sends.push_back(
          {.boundary = static_cast<int>(boundary),
           .forward = forward,
           .micro_batch = (forward ? progress.forwards_done : progress.backwards_done) - 1,
           .start = std::chrono::nanoseconds(begin - model_.start.count()),
           .end = std::chrono::nanoseconds(link.free - model_.start.count()),
           .arrival = std::chrono::nanoseconds(link.free - model_.start.count()) + model.latency});
    }
    if (model_.window) {
      ++link.outstanding;
      push(link.free, EventKind::kRelease, forward, boundary);
      if (link.outstanding > *model_.window) stages_[s].blocked_by = &link;
    }
    push(link.free + model.latency.count(), EventKind::kArrive, forward, boundary);
  }

  void release(const Event& event) {
    LinkState& link = (event.forward ? forward_ : backward_)[event.place];
    --link.outstanding;
    const std::size_t sender = event.forward ? event.place : event.place + 1U;
    if (stages_[sender].blocked_by != &link || link.outstanding > model_.window.value_or(0)) return;
    stages_[sender].blocked_by = nullptr;
    try_start(sender, event.time);
  }

  void arrive(const Event& event) {
    const std::size_t s = event.forward ? event.place + 1U : event.place;
    StageState& stage = stages_[s];
    int& arrived = event.forward ? stage.arrived_forward : stage.arrived_backward;
    ++arrived;
    const int started =
        event.forward ? stage.progress.forwards_started : stage.progress.backwards_started;
    int& peak =
        event.forward ? timeline_.receive_queue_forward[s] : timeline_.receive_queue_backward[s];
    peak = std::max(peak, arrived - started);
    try_start(s, event.time);
  }

  const Rule& rule_;
  const PipelineModel& model_;
  std::vector<StageState> stages_;
  std::vector<LinkState> forward_, backward_;
  std::vector<Event> events_;  // a binary heap, earliest on top
  std::uint32_t sequence_ = 0;
  Timeline timeline_;
};

}  // namespace weir::schedule
