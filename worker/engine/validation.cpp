// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/validation.h"

#include <limits>
#include <optional>
#include <utility>

#include "worker/engine/token_batch.h"
#include "worker/schedule/caps.h"

namespace weir::engine {
namespace {

using transport::Channel;

// Waits until the next micro-batch has arrived and its result may be sent.
Status wait_until_ready(const StepParts& parts, const std::stop_token& stop) {
  const SteadyTime since = parts.clock.now();
  for (;;) {
    if (!parts.go_on()) return Error{Code::kCancelled, "validation was stopped"};
    WEIR_OK(parts.links.poll(stop));
    const bool has_input = parts.links.first() || parts.links.has_input(Channel::kForward);
    if (has_input && parts.links.may_send(Channel::kForward)) return Unit{};
    const auto awaited = has_input ? std::nullopt : std::optional(Channel::kForward);
    WEIR_OK(wait_for_peer(parts, since, stop, awaited));
  }
}

}  // namespace

bool validation_due(std::int64_t completed, std::int64_t total, std::int64_t last,
                    std::int64_t interval) {
  if (interval <= 0 || completed <= last) return false;
  return completed / interval > last / interval || completed == total;
}

Result<double> run_validation(const StepParts& parts, const ValidationOrder& order,
                              const std::stop_token& stop) {
  const int samples = order.plan.schedule.micro_batch_size;
  const int micro_batches = (order.samples + samples - 1) / samples;
  StageLinks& links = parts.links;
  const StepTraffic traffic{.credits = schedule::credits_of(order.plan.schedule),
                            .micro_batches = micro_batches,
                            .forward_in_bytes = parts.stage.input_bytes(samples),
                            .forward_out_bytes = parts.stage.output_bytes(samples),
                            .header_follows = order.header_follows,
                            .forward_only = true};
  WEIR_OK(links.begin_step(traffic));
  parts.stage.begin_evaluation();
  TokenBatch batch;
  double sum = 0;
  for (int m = 0; m < micro_batches; ++m) {
    WEIR_OK(wait_until_ready(parts, stop));
    device::Buffer input;
    if (!links.first()) {
      WEIR_TRY(input, links.take_input(Channel::kForward));
    }
    WEIR_TRY(const stage::Tokens tokens,
             batch.load(parts.dataset, 0, m * samples, samples, micro_batches * samples,
                        parts.sequence, parts.stage.needs_inputs(), links.last()));
    WEIR_TRY(stage::Evaluated evaluated, parts.stage.evaluate(input, tokens));
    sum += evaluated.loss_sum;
    input = device::Buffer();
    WEIR_OK(links.free_slot(Channel::kForward));
    WEIR_OK(links.send(Channel::kForward, std::move(evaluated.output)));
  }
  if (!links.last()) return std::numeric_limits<double>::quiet_NaN();
  return sum / (static_cast<double>(micro_batches) * samples * parts.sequence);
}

}  // namespace weir::engine
