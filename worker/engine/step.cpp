// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/step.h"

#include <algorithm>
#include <string>
#include <utility>

#include "worker/base/check.h"
#include "worker/base/units.h"
#include "worker/engine/pauses.h"
#include "worker/engine/step_runner.h"

namespace weir::engine {

using schedule::Op;
using schedule::OpKind;
using std::chrono::nanoseconds;
using transport::Channel;

StepRunner::StepRunner(const StepParts& parts, const StepOrder& order, std::stop_token stop)
    : parts_(parts),
      order_(order),
      stop_(std::move(stop)),
      to_compute_(schedule::ids_to_compute(order.plan.micro_batches, order.kept)),
      ids_(schedule::listed(to_compute_[static_cast<std::size_t>(order.replica)])),
      micro_batches_(static_cast<int>(ids_.size())),
      step_micro_batches_(static_cast<int>(order.plan.step_micro_batches())),
      samples_(order.plan.schedule.micro_batch_size),
      graph_launches_before_(parts.stage.graph_launches()),
      dispatcher_(order.plan.schedule, order.plan.stage_count(), order.stage,
                  std::max(1, micro_batches_)) {}

Result<StepRecord> StepRunner::run() {
  watch().lap(StepPart::kOther);
  const SteadyTime start = watch().last();
  begin();
  watch().lap(StepPart::kOptimizer);
  if (parts_.replicas != nullptr && !averages()) {
    sync_.emplace(*parts_.replicas, parts_.stage, order_.plan, ids_by_replica(), order_.incarnation,
                  order_.step, parts_.links.last());
  }
  BoundaryCodec& codec = parts_.codec;
  WEIR_OK(codec.begin_step(order_.plan, order_.stage, parts_.stage));
  const StepTraffic traffic{.credits = schedule::credits_of(order_.plan.schedule),
                            .micro_batches = micro_batches_,
                            .forward_in_bytes = codec.received_bytes(Channel::kForward),
                            .forward_out_bytes = codec.sent_bytes(Channel::kForward),
                            .backward_in_bytes = codec.received_bytes(Channel::kBackward),
                            .backward_out_bytes = codec.sent_bytes(Channel::kBackward),
                            .header_follows = order_.header_follows,
                            .forward_note_bytes = kVerdictBytes,
                            .backward_note_bytes = note_bytes(layers_after())};
  WEIR_OK(parts_.links.begin_step(traffic));
  tied_ = parts_.stage.tied_sums();
  for (const stage::TiedSum& tied : tied_) tied_layers_.insert(tied.layer);

  while (micro_batches_ > 0 && !dispatcher_.done(progress_)) {
    if (!parts_.go_on()) return Error{Code::kCancelled, "step was stopped"};
    WEIR_OK(parts_.links.poll(stop_));
    const schedule::Ready ready = what_is_ready();
    if (const std::optional<Op> op = dispatcher_.next_op(progress_, ready)) {
      WEIR_OK(execute(*op));
    } else {
      WEIR_OK(wait(ready));
    }
  }
  if (sync_ && micro_batches_ == 0) tell_of_sums_kept();
  WEIR_OK(join_ties());
  if (averages()) {
    watch().lap(StepPart::kOther);
    const nanoseconds took = watch().last() - start;
    WEIR_OK(finish_beside());
    if (parts_.links.last()) parts_.ready_to_average(to_seconds(took));
  }
  const Result<Verdict> verdict = agree(start);
  if (!verdict) {
    if (sync_) keep_share(start);
    return verdict.error();
  }
  update(*verdict);
  if (averages()) WEIR_OK(average());
  StepRecord result = record(start);
  result.verdict = *verdict;
  WEIR_TRY(result.sent[0], codec.sent(Channel::kForward));
  WEIR_TRY(result.sent[1], codec.sent(Channel::kBackward));
  result.compressed = codec.codes_any();
  return result;
}

// The gradient is that of the whole batch, or of this replica's part if replicas average.
void StepRunner::begin() {
  const int samples = (averages() ? micro_batches_ : step_micro_batches_) * samples_;
  if (order_.own.ids.empty()) return parts_.stage.begin_step(order_.step, samples);
  parts_.stage.resume_step(order_.step, samples);
}

bool StepRunner::input_of_forward() const {
  return progress_.forwards_started < micro_batches_ &&
         (parts_.links.first() || parts_.links.has_input(Channel::kForward));
}

bool StepRunner::input_of_backward() const {
  if (progress_.backwards_started >= progress_.forwards_done) return false;
  return parts_.links.last() || parts_.links.has_input(Channel::kBackward);
}

// I3: an op is ready only if its input has arrived and there is room for its result.
schedule::Ready StepRunner::what_is_ready() const {
  return {.forward = input_of_forward() && parts_.links.may_send(Channel::kForward),
          .backward = input_of_backward() && parts_.links.may_send(Channel::kBackward)};
}

Status StepRunner::execute(const Op& op) {
  watch().begin_op(op.micro_batch);
  const nanoseconds waited = settle(op.kind == OpKind::kForward);
  if (op.micro_batch == 0) parts_.recorder.filled(waited);
  watch().lap(StepPart::kOther);
  const SteadyTime start = watch().last();
  const nanoseconds coded = coded_, loaded = loaded_;
  if (!first_start_) first_start_ = start;
  watch().begin_part(part_of(op.kind), op.micro_batch);
  switch (op.kind) {
    case OpKind::kForward:
      WEIR_OK(forward(op.micro_batch));
      watch().lap(StepPart::kForward);
      break;
    case OpKind::kBackward:
      WEIR_OK(backward(op.micro_batch));
      watch().lap(StepPart::kBackward);
      break;
    case OpKind::kWeights:
      WEIR_OK(weights(op.micro_batch));
      watch().lap(StepPart::kWeights);
      break;
  }
  last_end_ = watch().last();
  watch().end_op(op.kind, start);
  watch().begin_part(StepPart::kOther);
  const nanoseconds took = last_end_ - start - (coded_ - coded);
  count(op.kind, took);
  op_times_[static_cast<std::size_t>(op.kind)].push_back(took - (loaded_ - loaded));
  return Unit{};
}

StepPart StepRunner::part_of(OpKind kind) {
  switch (kind) {
    case OpKind::kForward:
      return StepPart::kForward;
    case OpKind::kBackward:
      return StepPart::kBackward;
    case OpKind::kWeights:
      break;
  }
  return StepPart::kWeights;
}

void StepRunner::count(OpKind kind, nanoseconds took) {
  switch (kind) {
    case OpKind::kForward:
      forward_ += took;
      parts_.recorder.forward_done(took, in_flight_at_start_, parts_.stage.activation_bytes());
      return;
    case OpKind::kBackward:
      backward_ += took;
      parts_.recorder.backward_done(took, parts_.stage.activation_bytes());
      return;
    case OpKind::kWeights:
      weights_ += took;
      parts_.recorder.weights_done(took);
      return;
  }
}

Status StepRunner::forward(int micro_batch) {
  WEIR_CHECK(micro_batch == progress_.forwards_started, "I1: forwards run in order");
  ++progress_.forwards_started;
  in_flight_at_start_ = progress_.in_flight();
  WEIR_CHECK(in_flight_at_start_ <= dispatcher_.cap(), "I4: in flight <= cap");
  peak_ = std::max(peak_, in_flight_at_start_);
  const int held = dispatcher_.splits() ? progress_.held() : in_flight_at_start_;
  WEIR_CHECK(held <= dispatcher_.held_cap(), "I4: held <= cap of what is held");
  held_peak_ = std::max(held_peak_, held);

  const bool needs_inputs = parts_.stage.needs_inputs();
  WEIR_TRY(const stage::Tokens tokens,
           tokens_.load(parts_.dataset, order_.step,
                        ids_[static_cast<std::size_t>(micro_batch)] * samples_, samples_,
                        step_micro_batches_ * samples_, parts_.sequence, needs_inputs,
                        parts_.links.last()));
  if (needs_inputs || parts_.links.last()) loaded_ += watch().lap(StepPart::kData);
  device::Buffer input;
  if (!parts_.links.first()) {
    WEIR_TRY(input, take(Channel::kForward));
  }
  WEIR_TRY(device::Buffer output, parts_.stage.forward(micro_batch, input, tokens));
  ++progress_.forwards_done;
  WEIR_OK(parts_.links.free_slot(Channel::kForward));
  return send(Channel::kForward, std::move(output), StepPart::kForward);
}

Status StepRunner::backward(int micro_batch) {
  WEIR_CHECK(micro_batch == progress_.backwards_done, "I1: backwards run in order");
  ++progress_.backwards_started;
  device::Buffer gradient;
  if (!parts_.links.last()) {
    WEIR_TRY(gradient, take(Channel::kBackward));
  }
  const bool splits = dispatcher_.splits();
  if (!splits) tell_of_the_last_sums(micro_batch);
  WEIR_TRY(device::Buffer result, splits ? parts_.stage.backward_input(micro_batch, gradient)
                                         : parts_.stage.backward(micro_batch, gradient));
  ++progress_.backwards_done;
  WEIR_OK(parts_.links.free_slot(Channel::kBackward));
  return send(Channel::kBackward, std::move(result), StepPart::kBackward);
}

Result<device::Buffer> StepRunner::take(Channel channel) {
  WEIR_TRY(device::Buffer message, parts_.links.take_input(channel));
  if (!parts_.codec.codes(channel, false)) return message;
  WEIR_TRY(device::Buffer tensor, parts_.codec.decode(channel, std::move(message)));
  coded_ += watch().lap(StepPart::kCodec);
  return tensor;
}

// op: that has made the tensor.
Status StepRunner::send(Channel channel, device::Buffer tensor, StepPart op) {
  if (parts_.codec.codes(channel, true)) {
    watch().lap(op);
    WEIR_TRY(tensor, parts_.codec.encode(channel, std::move(tensor)));
    coded_ += watch().lap(StepPart::kCodec);
  }
  return parts_.links.send(channel, std::move(tensor));
}

Status StepRunner::weights(int micro_batch) {
  WEIR_CHECK(micro_batch == progress_.weights_done, "I6: gradients add up in order");
  WEIR_CHECK(progress_.pending() > 0, "I6: weights follow the gradient of the input");
  ++progress_.weights_started;
  tell_of_the_last_sums(micro_batch);
  WEIR_OK(parts_.stage.backward_weights(micro_batch));
  ++progress_.weights_done;
  return Unit{};
}

Status StepRunner::wait(const schedule::Ready& ready) {
  const std::optional<Op> wanted = dispatcher_.wanted(progress_);
  WEIR_CHECK(wanted.has_value(), "an unfinished step wants an op");
  const bool forward = wanted->kind == OpKind::kForward;
  const bool arrived = forward ? input_of_forward() : input_of_backward();
  WEIR_CHECK(!(forward ? ready.forward : ready.backward), "what is wanted is not ready");
  watch().lap(StepPart::kOther);
  const std::optional<Channel> awaited =
      arrived ? std::nullopt : std::optional(forward ? Channel::kForward : Channel::kBackward);
  const StepPart late = forward ? StepPart::kForwardLate : StepPart::kGradientLate;
  watch().begin_part(arrived ? StepPart::kFullPeer : late, wanted->micro_batch);
  const bool had_activations = input_of_forward(), had_gradients = input_of_backward();
  const Status waited = wait_for_peer(parts_, watch().last(), stop_, awaited);
  idle_ += watch().wait_lap(had_activations, had_gradients);
  if (!waited) settle(forward);
  return waited;
}

// Ends the wait before an op.
nanoseconds StepRunner::settle(bool forward) {
  const Channel channel = forward ? Channel::kForward : Channel::kBackward;
  return watch().settle(forward, parts_.links.input_transfer(channel),
                        parts_.links.opening_transfer(channel));
}

void StepRunner::update(const Verdict& verdict) {
  watch().lap(StepPart::kOther);
  watch().begin_part(StepPart::kOptimizer);
  skipped_ = !end_step(parts_.stage, verdict, order_.grad_clip);
  end_.updated = true;
  const nanoseconds took = watch().lap(StepPart::kOptimizer);
  if (skipped_) return;
  parts_.recorder.optimizer_done(took);
  update_ += took;
}

StepRecord StepRunner::record(SteadyTime start) {
  watch().lap(StepPart::kOther);
  const SteadyTime end = watch().last();
  StepRecord result{.step = order_.step,
                    .next_step = averages() ? grant_.next_step : order_.step + 1,
                    .epoch = order_.plan.revision,
                    .replica = order_.replica,
                    .stage = order_.stage,
                    .first_stage = parts_.links.first(),
                    .last_stage = parts_.links.last(),
                    .skipped = skipped_};
  if (result.last_stage) result.loss = loss();
  if (sync_) result.next_epoch = sync_->next_epoch();
  result.codecs = !order_.plan.codecs.raw();
  result.sync_seconds = to_seconds(sync_wait_);
  result.step_seconds = first_start_ ? to_seconds(last_end_ - *first_start_) : 0;
  result.iteration_seconds = to_seconds(end - start);
  result.compute_seconds = to_seconds(forward_ + backward_ + weights_ + update_ + coded_);
  result.forward_seconds = to_seconds(forward_);
  result.backward_seconds = to_seconds(backward_ + weights_);
  // Between GPUs ops are only enqueued, so their times on the host say nothing.
  if (!parts_.links.on_device()) {
    for (std::size_t kind = 0; kind < op_times_.size(); ++kind) {
      result.pauses[kind] = pauses_in(op_times_[kind]);
    }
  }
  result.idle_seconds = to_seconds(idle_);
  result.samples = micro_batches_ * samples_;
  result.in_flight_peak = peak_;
  result.held_peak = held_peak_;
  result.graph_launches = parts_.stage.graph_launches() - graph_launches_before_;
  return result;
}

bool goes_on(const StepParts& parts, bool for_others) {
  if (!parts.go_on()) return false;
  return !for_others || !parts.others_lost || !parts.others_lost();
}

Status wait_for_peer(const StepParts& parts, SteadyTime since, std::stop_token stop,
                     std::optional<Channel> awaited, bool for_others) {
  for (;;) {
    WEIR_TRY(const bool came, parts.links.pump(parts.clock.now() + kStepSlice, stop));
    if (came) return Unit{};
    if (!goes_on(parts, for_others)) return Error{Code::kCancelled, "step was stopped"};
    if (awaited && parts.links.peer_left(*awaited)) {
      WEIR_TRY(const bool was_there, parts.links.pump(SteadyTime{}, stop));
      if (was_there) return Unit{};
      return Error{
          Code::kUnavailable,
          std::string(*awaited == Channel::kForward ? "the stage before" : "the next stage") +
              " has left in the middle of a step"};
    }
    if (parts.clock.now() - since >= parts.progress_deadline) {
      return Error{Code::kTimeout,
                   "no message from a peer for " +
                       std::to_string(static_cast<int>(to_seconds(parts.progress_deadline))) +
                       " s"};
    }
  }
}

bool end_step(stage::Stage& stage, const Verdict& verdict, double grad_clip) {
  if (!is_usable(verdict.squares, grad_clip)) return false;
  stage.scale_gradients(clip_factor(verdict.squares, grad_clip));
  stage.optimizer_step();
  return true;
}

Result<StepRecord> run_step(const StepParts& parts, const StepOrder& order, std::stop_token stop,
                            StepEnd* end) {
  StepRunner runner(parts, order, std::move(stop));
  Result<StepRecord> record = runner.run();
  if (end != nullptr) *end = runner.end();
  return record;
}

}  // namespace weir::engine
