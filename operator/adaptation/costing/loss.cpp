// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/costing/loss.h"

#include <algorithm>

#include "worker/base/units.h"

namespace weir::costing {
namespace {

// Seconds of one transfer of every link at its baseline; empty = some baseline is unknown.
std::vector<double> baseline_seconds(const Input& input, const LinkView& view) {
  std::vector<double> seconds;
  for (std::size_t i = 0; i < view.links.size(); ++i) {
    const auto found = input.baseline.find(view.links[i]);
    if (found == input.baseline.end() || !(found->second > 0)) return {};
    seconds.push_back(view.bytes[i] / found->second);
  }
  return seconds;
}

std::string inputs_text(const Input& input, const std::vector<double>& seconds) {
  std::string text = describe(input.current) + " M" + std::to_string(input.micro_batches);
  for (const schedule::StageTime& stage : input.stages) {
    text +=
        " " + std::to_string(stage.forward.count()) + "/" + std::to_string(stage.backward.count());
  }
  for (const double value : seconds) text += " " + std::to_string(value);
  return text;
}

}  // namespace

std::vector<BoundLink> bound_links(const Input& input, const LinkView& view) {
  double slowest = 0;
  for (const schedule::StageTime& stage : input.stages) {
    slowest = std::max(slowest, to_seconds(stage.forward + stage.backward));
  }
  std::vector<BoundLink> bound;
  const std::vector<double> transfer = link_quantile(view, kMedian);
  for (std::size_t i = 0; i < view.links.size(); ++i) {
    const double seconds = transfer[i] + view.latency[i];
    if (seconds >= kBoundShare * slowest) bound.push_back({view.links[i], seconds});
  }
  return bound;
}

void sum_loss(const Input& input, const LinkView& view, Coster& coster, State& state) {
  const std::int64_t steps = state.loss_step < 0 ? 0 : input.step - state.loss_step;
  state.loss_step = input.step;
  const std::vector<double> seconds = baseline_seconds(input, view);
  if (seconds.empty() || input.measured_step_seconds <= 0) return;
  // A single replica waits for nobody, so its sync time is only the difference of two clocks.
  const double wait = input.replicas.size() > 1 ? input.sync_seconds : 0;
  std::string inputs = inputs_text(input, seconds);
  if (inputs != state.baseline_inputs) {
    state.baseline_inputs = std::move(inputs);
    state.baseline_step = coster.step(input.current, sizes_of(input).front(), seconds) - wait;
  }
  const int size = input.current.micro_batch_size;
  const double usual = state.baseline_step + wait - input.sync_lost_seconds;
  const double lost = input.measured_step_seconds - correction_of(state, size, size) * usual;
  // The loss is never negative, so that noise around free links does not add up to an action.
  state.loss_seconds = std::max(0.0, state.loss_seconds + static_cast<double>(steps) * lost);
}

}  // namespace weir::costing
