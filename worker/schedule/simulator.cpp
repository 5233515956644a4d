// SPDX-License-Identifier: Apache-2.0
// Events are ordered by (time, sequence of insertion); the second key decides ties, which the
// golden vectors pin. Releases of a link matter only with a send window and are left out without
// one: the order of the others stays the same.
#include "worker/schedule/simulator.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "worker/base/check.h"

namespace weir::schedule {
namespace {

using std::chrono::nanoseconds;
using Ticks = nanoseconds::rep;

enum class EventKind : unsigned char { kEnd, kRelease, kArrive };

struct Event {
  Ticks time;
  std::uint32_t sequence;
  EventKind kind;
  bool forward;         // the direction of a link
  std::uint16_t place;  // stage of kEnd, boundary of the others
};

bool later(const Event& a, const Event& b) {
  return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
}

// The time at which the integral of the share from `start` on reaches `work`.
Ticks finish(const RateTrace& trace, Ticks start, Ticks work) {
  if (trace.empty() || work <= 0) return start + work;
  const auto after = std::upper_bound(
      trace.begin(), trace.end(), start,
      [](Ticks time, const RateTrace::value_type& entry) { return time < entry.first.count(); });
  auto next = after;
  double share = after == trace.begin() ? 1.0 : std::prev(after)->second;
  double left = static_cast<double>(work);
  Ticks now = start;
  while (next != trace.end()) {
    const double room = static_cast<double>(next->first.count() - now) * share;
    if (room >= left) break;
    left -= room;
    now = next->first.count();
    share = next->second;
    ++next;
  }
  return now + static_cast<Ticks>(std::ceil(left / share));
}

struct LinkState {
  const LinkModel* model = nullptr;
  Ticks free = 0;
  int outstanding = 0;
};

struct StageState {
  StageProgress progress;
  bool running = false;
  OpKind op = OpKind::kForward;
  LinkState* blocked_by = nullptr;  // the whole stage waits for this send window
  int arrived_forward = 0, arrived_backward = 0;
  Ticks idle_since = 0;
};

class Simulation {
 public:
  Simulation(const std::vector<Dispatcher>& dispatchers, const PipelineModel& model)
      : dispatchers_(dispatchers), model_(model), stages_(model.stages.size()) {
    const std::size_t count = stages_.size();
    WEIR_CHECK(count >= 1 && count < 65536, "a pipeline has stages");
    WEIR_CHECK(model.forward.size() + 1 == count && model.backward.size() + 1 == count,
               "one link of each direction between two stages");
    for (std::size_t b = 0; b + 1 < count; ++b) {
      forward_.push_back({&model.forward[b], model.start.count(), 0});
      backward_.push_back({&model.backward[b], model.start.count(), 0});
    }
    const auto micro_batches = static_cast<std::size_t>(dispatchers.front().micro_batches());
    events_.reserve(count + 4 * count * micro_batches);  // every transfer under way at once
    stages_.front().arrived_forward = dispatchers.front().micro_batches();
    for (StageState& stage : stages_) stage.idle_since = model.start.count();
    timeline_.peak_in_flight.assign(count, 0);
    timeline_.receive_queue_forward.assign(count, 0);
    timeline_.receive_queue_backward.assign(count, 0);
    timeline_.busy.assign(count, nanoseconds(0));
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
      if (!dispatchers_[s].done(stages_[s].progress)) return std::nullopt;
    }
    timeline_.step = nanoseconds(last_end - start);
    return std::move(timeline_);
  }

 private:
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
    const std::optional<Op> op = dispatchers_[s].next_op(progress, ready);
    if (!op) return;
    if (now > stage.idle_since) {
      const bool forward = dispatchers_[s].wanted(progress).value_or(*op).kind == OpKind::kForward;
      Idle& idle = timeline_.idle[s];
      (forward ? idle.wait_forward : idle.wait_backward) += nanoseconds(now - stage.idle_since);
    }
    const StageTime& time = model_.stages[s];
    nanoseconds duration = time.backward;
    if (op->kind == OpKind::kForward) {
      duration = time.forward;
      ++progress.forwards_started;
      int& peak = timeline_.peak_in_flight[s];
      peak = std::max(peak, progress.in_flight());
    } else {
      ++progress.backwards_started;
    }
    stage.running = true;
    stage.op = op->kind;
    timeline_.busy[s] += duration;
    push(now + duration.count(), EventKind::kEnd, false, s);
  }

  void end(std::size_t s, Ticks now) {
    StageState& stage = stages_[s];
    stage.running = false;
    stage.idle_since = now;
    if (stage.op == OpKind::kForward) {
      ++stage.progress.forwards_done;
      if (s + 1 < stages_.size()) {
        send(s, now, forward_[s], true, s);
      } else {
        ++stage.arrived_backward;
      }
    } else {
      ++stage.progress.backwards_done;
      if (s > 0) send(s, now, backward_[s - 1], false, s - 1);
    }
    try_start(s, now);
  }

  void send(std::size_t s, Ticks now, LinkState& link, bool forward, std::size_t boundary) {
    const LinkModel& model = *link.model;
    link.free = finish(model.trace, std::max(now, link.free), model.transfer.count());
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

  const std::vector<Dispatcher>& dispatchers_;
  const PipelineModel& model_;
  std::vector<StageState> stages_;
  std::vector<LinkState> forward_, backward_;
  std::vector<Event> events_;  // a binary heap, earliest on top
  std::uint32_t sequence_ = 0;
  Timeline timeline_;
};

}  // namespace

std::optional<Timeline> simulate(const Schedule& schedule, int micro_batches,
                                 const PipelineModel& model) {
  std::vector<Dispatcher> dispatchers;
  const int stages = static_cast<int>(model.stages.size());
  dispatchers.reserve(model.stages.size());
  for (int s = 0; s < stages; ++s) dispatchers.emplace_back(schedule, stages, s, micro_batches);
  return Simulation(dispatchers, model).run();
}

std::optional<Timeline> simulate_orders(const std::vector<Order>& orders,
                                        const PipelineModel& model) {
  WEIR_CHECK(orders.size() == model.stages.size(), "one order per stage");
  std::vector<Dispatcher> dispatchers;
  dispatchers.reserve(orders.size());
  for (const Order& order : orders) {
    WEIR_CHECK(order.size() == orders.front().size(), "the same micro-batches on every stage");
    dispatchers.emplace_back(order);
  }
  return Simulation(dispatchers, model).run();
}

}  // namespace weir::schedule
