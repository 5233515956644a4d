// SPDX-License-Identifier: Apache-2.0
// Rules for the event loop: the engine's own dispatch, and zero bubble.
#include "worker/schedule/simulator.h"

#include "worker/base/check.h"
#include "worker/schedule/simulation.h"

namespace weir::schedule {
namespace {

using std::chrono::nanoseconds;

// The rule of the engine: next_op.
class EngineRule {
 public:
  EngineRule(std::vector<Dispatcher> dispatchers, const PipelineModel& model)
      : dispatchers_(std::move(dispatchers)), model_(model) {}

  std::optional<OpKind> next(std::size_t s, const StageProgress& progress,
                             const Ready& ready) const {
    const std::optional<Op> op = dispatchers_[s].next_op(progress, ready);
    return op ? std::optional(op->kind) : std::nullopt;
  }
  bool wants_forward(std::size_t s, const StageProgress& progress) const {
    const std::optional<Op> op = dispatchers_[s].wanted(progress);
    return op && op->kind == OpKind::kForward;
  }
  int held(std::size_t s, const StageProgress& progress) const {
    return dispatchers_[s].splits() ? progress.held() : progress.in_flight();
  }
  bool done(std::size_t s, const StageProgress& progress) const {
    return dispatchers_[s].done(progress);
  }
  nanoseconds backward(std::size_t s) const {
    return dispatchers_[s].splits() ? model_.stages[s].backward_input : model_.stages[s].backward;
  }
  nanoseconds weights(std::size_t s) const { return model_.stages[s].backward_weights; }

 private:
  std::vector<Dispatcher> dispatchers_;
  const PipelineModel& model_;
};

class ZeroBubbleRule {
 public:
  ZeroBubbleRule(const ZeroBubble& rule, int micro_batches, const PipelineModel& model)
      : rule_(rule), micro_batches_(micro_batches), model_(model) {}

  std::optional<OpKind> next(std::size_t s, const StageProgress& progress,
                             const Ready& ready) const {
    const bool warming_up = progress.forwards_started < std::min(micro_batches_, rule_.warm_up[s]);
    const bool forward = progress.forwards_started < micro_batches_ && ready.forward;
    if (warming_up) return forward ? std::optional(OpKind::kForward) : std::nullopt;
    if (progress.backwards_started < micro_batches_ && ready.backward) return OpKind::kBackward;
    if (forward && below_cap(s, progress)) return OpKind::kForward;
    if (progress.pending() > 0) return OpKind::kWeights;
    return std::nullopt;
  }
  bool wants_forward(std::size_t s, const StageProgress& progress) const {
    return progress.forwards_started < micro_batches_ && below_cap(s, progress);
  }
  int held(std::size_t, const StageProgress& progress) const { return progress.held(); }
  bool done(std::size_t, const StageProgress& progress) const {
    return progress.weights_done == micro_batches_;
  }
  nanoseconds backward(std::size_t s) const { return model_.stages[s].backward; }
  nanoseconds weights(std::size_t s) const { return rule_.weights[s]; }

 private:
  bool below_cap(std::size_t s, const StageProgress& progress) const {
    return progress.held() < rule_.held_caps[s];
  }

  const ZeroBubble& rule_;
  int micro_batches_;
  const PipelineModel& model_;
};

}  // namespace

nanoseconds end_of(const Timeline& timeline, std::size_t stage) {
  const Idle& idle = timeline.idle[stage];
  return timeline.busy[stage] + idle.wait_forward + idle.wait_backward;
}

nanoseconds period_of(const Timeline& timeline) {
  std::vector<std::optional<nanoseconds>> first(timeline.busy.size());
  nanoseconds period{0};
  for (const TimedOp& op : timeline.ops) {
    auto& start = first[static_cast<std::size_t>(op.stage)];
    if (!start) start = op.start;
    period = std::max(period, op.end - *start);
  }
  return period;
}

std::optional<Timeline> simulate(const Schedule& schedule, int micro_batches,
                                 const PipelineModel& model) {
  if (schedule.split && schedule.dispatch == Dispatch::kStrict) {
    // As order_of, which would simulate the step once for each stage.
    return simulate_orders(strict_split_orders(schedule, micro_batches), model);
  }
  const int stages = static_cast<int>(model.stages.size());
  std::vector<Dispatcher> dispatchers;
  dispatchers.reserve(model.stages.size());
  for (int s = 0; s < stages; ++s) dispatchers.emplace_back(schedule, stages, s, micro_batches);
  const EngineRule rule(std::move(dispatchers), model);
  return Simulation(rule, micro_batches, model).run();
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
  const int micro_batches = dispatchers.front().micro_batches();
  const EngineRule rule(std::move(dispatchers), model);
  return Simulation(rule, micro_batches, model).run();
}

std::vector<Order> split_orders(const Schedule& schedule, int micro_batches,
                                const PipelineModel& model) {
  WEIR_CHECK(schedule.split.has_value(), "backwards are split");
  Schedule hint = schedule;
  hint.dispatch = Dispatch::kHint;
  PipelineModel recorded = model;
  recorded.record = true;
  const std::optional<Timeline> timeline = simulate(hint, micro_batches, recorded);
  WEIR_CHECK(timeline.has_value(), "Hint never ends in a wait");
  std::vector<Order> orders(model.stages.size());
  for (const TimedOp& op : timeline->ops) {
    orders[static_cast<std::size_t>(op.stage)].push_back(op.op);
  }
  return orders;
}

std::optional<Timeline> simulate_zero_bubble(const ZeroBubble& rule, int micro_batches,
                                             const PipelineModel& model) {
  const std::size_t stages = model.stages.size();
  WEIR_CHECK(rule.weights.size() == stages && rule.held_caps.size() == stages &&
                 rule.warm_up.size() == stages,
             "what the rule reads is there for every stage");
  const ZeroBubbleRule of_stages(rule, micro_batches, model);
  return Simulation(of_stages, micro_batches, model).run();
}

}  // namespace weir::schedule
