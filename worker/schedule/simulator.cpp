// SPDX-License-Identifier: Apache-2.0
// Rules for the event loop: the engine's own dispatch, and split backward.
#include "worker/schedule/simulator.h"

#include "worker/base/check.h"
#include "worker/schedule/simulation.h"

namespace weir::schedule {
namespace {

using std::chrono::nanoseconds;

// The rule of the engine: next_op.
class EngineRule {
 public:
  explicit EngineRule(std::vector<Dispatcher> dispatchers) : dispatchers_(std::move(dispatchers)) {}

  std::optional<Work> next(std::size_t s, const StageProgress& progress, const Ready& ready) const {
    const std::optional<Op> op = dispatchers_[s].next_op(progress, ready);
    if (!op) return std::nullopt;
    return op->kind == OpKind::kForward ? Work::kForward : Work::kBackward;
  }
  bool wants_forward(std::size_t s, const StageProgress& progress) const {
    const std::optional<Op> op = dispatchers_[s].wanted(progress);
    return op && op->kind == OpKind::kForward;
  }
  int held(std::size_t, const StageProgress& progress) const { return progress.in_flight(); }
  bool done(std::size_t s, const StageProgress& progress) const {
    return dispatchers_[s].done(progress);
  }
  nanoseconds weights(std::size_t) const { return {}; }

 private:
  std::vector<Dispatcher> dispatchers_;
};

class SplitRule {
 public:
  SplitRule(const SplitBackward& split, int micro_batches)
      : split_(split), micro_batches_(micro_batches) {}

  std::optional<Work> next(std::size_t s, const SplitProgress& progress, const Ready& ready) const {
    const bool warming_up = split_.rule == SplitBackward::Rule::kZeroBubble &&
                            progress.forwards_started < std::min(micro_batches_, split_.warm_up[s]);
    const bool forward = progress.forwards_started < micro_batches_ && ready.forward;
    if (warming_up) return forward ? std::optional(Work::kForward) : std::nullopt;

    const bool backward = progress.backwards_started < micro_batches_ && ready.backward;
    const bool may_forward = forward && below_caps(s, progress);
    if (split_.rule == SplitBackward::Rule::kHint && may_forward) return Work::kForward;
    if (backward) return Work::kBackward;
    if (may_forward) return Work::kForward;
    if (progress.weights_started < progress.backwards_done) return Work::kWeights;
    return std::nullopt;
  }
  bool wants_forward(std::size_t s, const SplitProgress& progress) const {
    return progress.forwards_started < micro_batches_ && below_caps(s, progress);
  }
  int held(std::size_t, const SplitProgress& progress) const {
    return progress.forwards_started - progress.weights_done;
  }
  bool done(std::size_t, const SplitProgress& progress) const {
    return progress.weights_done == micro_batches_;
  }
  nanoseconds weights(std::size_t s) const { return split_.weights[s]; }

 private:
  bool below_caps(std::size_t s, const SplitProgress& progress) const {
    if (split_.rule == SplitBackward::Rule::kZeroBubble) {
      return held(s, progress) < split_.held_caps[s];
    }
    return progress.in_flight() < split_.caps[s] && held(s, progress) < split_.held_caps[s];
  }

  const SplitBackward& split_;
  int micro_batches_;
};

}  // namespace

std::optional<Timeline> simulate(const Schedule& schedule, int micro_batches,
                                 const PipelineModel& model) {
  std::vector<Dispatcher> dispatchers;
  const int stages = static_cast<int>(model.stages.size());
  dispatchers.reserve(model.stages.size());
  for (int s = 0; s < stages; ++s) dispatchers.emplace_back(schedule, stages, s, micro_batches);
  const EngineRule rule(std::move(dispatchers));
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
  const EngineRule rule(std::move(dispatchers));
  return Simulation(rule, micro_batches, model).run();
}

std::optional<Timeline> simulate_split(const SplitBackward& split, int micro_batches,
                                       const PipelineModel& model) {
  const std::size_t stages = model.stages.size();
  WEIR_CHECK(split.weights.size() == stages && split.held_caps.size() == stages,
             "a time of W and a cap per stage");
  WEIR_CHECK(
      (split.rule == SplitBackward::Rule::kHint ? split.caps : split.warm_up).size() == stages,
      "what the rule reads is there for every stage");
  const SplitRule rule(split, micro_batches);
  return Simulation(rule, micro_batches, model).run();
}

}  // namespace weir::schedule
