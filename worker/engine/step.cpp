// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/step.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "worker/base/check.h"
#include "worker/base/log.h"
#include "worker/base/units.h"
#include "worker/engine/replica_sync.h"
#include "worker/engine/state_average.h"
#include "worker/engine/token_batch.h"
#include "worker/stage/layer.h"

namespace weir::engine {
namespace {

bool goes_on(const StepParts& parts, bool for_others) {
  if (!parts.go_on()) return false;
  return !for_others || !parts.others_lost || !parts.others_lost();
}

using schedule::Op;
using schedule::OpKind;
using std::chrono::nanoseconds;
using transport::Channel;

// A letter waits at most this long for a rank.
constexpr auto kSlice = std::chrono::milliseconds(20);
constexpr std::size_t kTiedBucket = std::size_t{1} << 20U;  // doubles of one exchange, 8 MB

class Runner {
 public:
  Runner(const StepParts& parts, const StepOrder& order, std::stop_token stop)
      : parts_(parts),
        order_(order),
        stop_(std::move(stop)),
        to_compute_(schedule::ids_to_compute(order.plan.micro_batches, order.kept)),
        ids_(schedule::listed(to_compute_[static_cast<std::size_t>(order.replica)])),
        micro_batches_(static_cast<int>(ids_.size())),
        step_micro_batches_(
            std::accumulate(order.plan.micro_batches.begin(), order.plan.micro_batches.end(), 0)),
        samples_(order.plan.schedule.micro_batch_size),
        graph_launches_before_(parts.stage.graph_launches()),
        dispatcher_(order.plan.schedule, order.plan.stage_count(), order.stage,
                    std::max(1, micro_batches_)) {}

  Result<StepRecord> run() {
    watch().lap(StepPart::kOther);
    const SteadyTime start = watch().last();
    begin();
    watch().lap(StepPart::kOptimizer);
    if (parts_.replicas != nullptr && !averages()) {
      sync_.emplace(*parts_.replicas, parts_.stage, order_.plan, ids_by_replica(),
                    order_.incarnation, order_.step, parts_.links.last());
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

  StepEnd end() const { return end_; }

 private:
  Stopwatch& watch() const { return parts_.stopwatch; }

  // The gradient is that of the whole batch, or of this replica's part if replicas average.
  void begin() {
    const int samples = (averages() ? micro_batches_ : step_micro_batches_) * samples_;
    if (order_.own.ids.empty()) return parts_.stage.begin_step(order_.step, samples);
    parts_.stage.resume_step(order_.step, samples);
  }

  // The micro-batches in the sums of each replica at the end of its part.
  std::vector<schedule::Ids> ids_by_replica() const {
    std::vector<schedule::Ids> ids = to_compute_;
    for (std::size_t r = 0; r < order_.kept.size(); ++r) {
      ids[r] = schedule::united(ids[r], order_.kept[r]);
    }
    return ids;
  }

  // The losses of this replica, by rising id.
  std::vector<double> losses() const {
    if (!parts_.links.last()) return {};
    if (order_.own.ids.empty()) return parts_.stage.loss_sums();
    std::map<int, double> loss_of;
    const auto add = [&](const std::vector<int>& ids, const std::vector<double>& sums) {
      for (std::size_t i = 0; i < std::min(ids.size(), sums.size()); ++i) loss_of[ids[i]] = sums[i];
    };
    add(schedule::listed(order_.own.ids), order_.own.losses);
    add(ids_, parts_.stage.loss_sums());
    std::vector<double> sums;
    for (const auto& [id, loss] : loss_of) sums.push_back(loss);
    return sums;
  }

  // Gets from the others whatever this rank needs to end the step.
  Result<Verdict> agree(SteadyTime start) {
    if (sync_) WEIR_OK(wait_for_sums());
    end_.summed = true;
    end_.record = record(start);
    if (sync_) WEIR_OK(wait_for_cards());
    return hear_verdict();
  }

  // The step cannot end. The other stages of this replica may still compute their part, so they
  // get what they need of this one.
  void keep_share(SteadyTime start) {
    while (!parts_.links.tensors_received()) {
      if (!wait_for_peer(parts_, start, stop_)) return;
    }
    end_.share = Share{.ids = schedule::united(
                           to_compute_[static_cast<std::size_t>(order_.replica)], order_.own.ids),
                       .losses = losses()};
  }

  bool input_of_forward() const {
    return progress_.forwards_started < micro_batches_ &&
           (parts_.links.first() || parts_.links.has_input(Channel::kForward));
  }
  bool input_of_backward() const {
    if (progress_.backwards_started >= progress_.forwards_done) return false;
    return parts_.links.last() || parts_.links.has_input(Channel::kBackward);
  }
  // I3: an op is ready only if its input has arrived and there is room for its result.
  schedule::Ready what_is_ready() const {
    return {.forward = input_of_forward() && parts_.links.may_send(Channel::kForward),
            .backward = input_of_backward() && parts_.links.may_send(Channel::kBackward)};
  }

  Status execute(const Op& op) {
    watch().begin_op(op.micro_batch);
    const nanoseconds waited = settle(op.kind == OpKind::kForward);
    if (op.micro_batch == 0) parts_.recorder.filled(waited);
    watch().lap(StepPart::kOther);
    const SteadyTime start = watch().last();
    const nanoseconds coded = coded_;
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
    count(op.kind, last_end_ - start - (coded_ - coded));
    return Unit{};
  }

  static StepPart part_of(OpKind kind) {
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

  void count(OpKind kind, nanoseconds took) {
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

  Status forward(int micro_batch) {
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
    if (needs_inputs || parts_.links.last()) watch().lap(StepPart::kData);
    device::Buffer input;
    if (!parts_.links.first()) {
      WEIR_TRY(input, take(Channel::kForward));
    }
    WEIR_TRY(device::Buffer output, parts_.stage.forward(micro_batch, input, tokens));
    ++progress_.forwards_done;
    WEIR_OK(parts_.links.free_slot(Channel::kForward));
    return send(Channel::kForward, std::move(output), StepPart::kForward);
  }

  Status backward(int micro_batch) {
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

  Result<device::Buffer> take(Channel channel) {
    WEIR_TRY(device::Buffer message, parts_.links.take_input(channel));
    if (!parts_.codec.codes(channel, false)) return message;
    WEIR_TRY(device::Buffer tensor, parts_.codec.decode(channel, std::move(message)));
    coded_ += watch().lap(StepPart::kCodec);
    return tensor;
  }
  // op: that has made the tensor.
  Status send(Channel channel, device::Buffer tensor, StepPart op) {
    if (parts_.codec.codes(channel, true)) {
      watch().lap(op);
      WEIR_TRY(tensor, parts_.codec.encode(channel, std::move(tensor)));
      coded_ += watch().lap(StepPart::kCodec);
    }
    return parts_.links.send(channel, std::move(tensor));
  }

  Status weights(int micro_batch) {
    WEIR_CHECK(micro_batch == progress_.weights_done, "I6: gradients add up in order");
    WEIR_CHECK(progress_.pending() > 0, "I6: weights follow the gradient of the input");
    ++progress_.weights_started;
    tell_of_the_last_sums(micro_batch);
    WEIR_OK(parts_.stage.backward_weights(micro_batch));
    ++progress_.weights_done;
    return Unit{};
  }

  // While the last micro-batch adds to them, the sums of the layers become complete one after the
  // other; those of layers with tied tables wait for the other end.
  void tell_of_the_last_sums(int micro_batch) {
    if (!sync_ || micro_batch + 1 < micro_batches_) return;
    parts_.stage.on_layer_summed([this](std::size_t i) {
      if (!tied_layers_.contains(i)) sync_->layer_is_summed(i);
    });
  }

  // A replica with nothing left to compute has them all.
  void tell_of_sums_kept() {
    const std::size_t layers = parts_.stage.layer_sums().size();
    for (std::size_t i = layers; i-- > 0;) {
      if (!tied_layers_.contains(i)) sync_->layer_is_summed(i);
    }
  }

  // Both ends of a tied table get the sum of both.
  Status join_ties() {
    if (tied_.empty()) return Unit{};
    watch().lap(StepPart::kOther);
    watch().begin_part(StepPart::kSum);
    const SteadyTime since = watch().last();
    parts_.stage.join_ties();
    std::uint32_t part = 0;
    for (const stage::TiedSum& tied : tied_) {
      if (parts_.ties == nullptr) break;
      for (std::size_t first = 0; first < tied.sums.size(); first += kTiedBucket) {
        const std::size_t count = std::min(kTiedBucket, tied.sums.size() - first);
        WEIR_OK(add_other_end(tied.sums.subspan(first, count), part++, since));
      }
    }
    if (parts_.ties != nullptr) waited(StepPart::kSum);
    if (sync_) {
      for (const std::size_t layer : tied_layers_) sync_->layer_is_summed(layer);
    }
    return Unit{};
  }

  Status add_other_end(std::span<double> sums, std::uint32_t part, SteadyTime since) {
    device::Device& device = parts_.stage.device();
    device::Buffer both = device.allocate(sums.size_bytes());
    if (!both) return stage::no_memory(device, sums.size_bytes());
    parts_.ties->all_reduce({.tag = {.step = static_cast<std::uint64_t>(order_.step), .part = part},
                             .members = {0, 1},
                             .count = sums.size(),
                             .in = std::as_bytes(sums),
                             .out = {both.data(), both.size()},
                             .combine = transport::sum_doubles(),
                             .on_device = true});
    WEIR_OK(wait_for_collective(*parts_.ties, since, "nothing from the other end of tied tables"));
    WEIR_OK(device.copy(sums.data(), both.data(), both.size()));
    return device.synchronize();
  }

  Status wait(const schedule::Ready& ready) {
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
  nanoseconds settle(bool forward) {
    const Channel channel = forward ? Channel::kForward : Channel::kBackward;
    return watch().settle(forward, parts_.links.input_transfer(channel),
                          parts_.links.opening_transfer(channel));
  }

  // Waits until this rank has the gradients of this step.
  Status wait_for_sums() {
    watch().lap(StepPart::kOther);
    watch().begin_part(StepPart::kSum);
    WEIR_OK(
        wait_for_collective(*parts_.replicas, watch().last(), "nothing from the other replicas"));
    waited(StepPart::kSum);
    sync_->sums_are_complete();
    return Unit{};
  }

  // Waits until all replicas have them. A card leaves behind complete sums, so that a rank with all
  // cards knows it.
  Status wait_for_cards() {
    sync_->send_card(parts_.next_epoch ? parts_.next_epoch() : 0, losses());
    watch().lap(StepPart::kOther);
    watch().begin_part(StepPart::kSum);
    WEIR_OK(
        wait_for_collective(*parts_.replicas, watch().last(), "nothing from the other replicas"));
    waited(StepPart::kSum);
    parts_.recorder.synchronized(parts_.replicas->counters(), sync_wait_);
    return sync_->take_cards();
  }

  // Called between two checks of the collective or of the coordinator's answer.
  Status look_around(SteadyTime since, const char* missing, bool for_others = true) {
    if (!goes_on(parts_, for_others)) return Error{Code::kCancelled, "step was stopped"};
    WEIR_OK(parts_.links.poll(stop_));
    if (parts_.clock.now() - since < parts_.progress_deadline) return Unit{};
    return Error{Code::kTimeout, std::string(missing) + " before the deadline"};
  }

  Status wait_for_collective(transport::Collective& collective, SteadyTime since,
                             const char* missing) {
    for (;;) {
      WEIR_TRY(const bool done, collective.wait(parts_.clock.now() + kSlice, stop_));
      if (done) return Unit{};
      WEIR_OK(look_around(since, missing, &collective == parts_.replicas));
    }
  }

  bool averages() const { return parts_.replicas != nullptr && schedule::averages(order_.plan); }

  // Averages with the replicas that the coordinator names, once it has named them.
  Status average() {
    watch().lap(StepPart::kOther);
    watch().begin_part(StepPart::kAverage);
    const SteadyTime since = watch().last();
    for (;;) {
      WEIR_TRY(const std::optional<protocol::Grant> grant,
               parts_.granted(parts_.clock.now() + kSlice));
      if (grant) {
        grant_ = *grant;
        break;
      }
      WEIR_OK(look_around(since, "no GRANT"));
    }
    const std::string wrong = objection(grant_, order_.replica, order_.plan.replica_count());
    if (!wrong.empty()) return invalid("GRANT: " + wrong);
    WEIR_OK(parts_.links.synchronize());
    if (parts_.links.on_device()) WEIR_OK(drain());
    bool met = true;
    if (!begin_beside()) {
      StateAverage average(*parts_.replicas, parts_.stage, parts_.links.device(), grant_);
      if (average.post_next()) {
        WEIR_TRY(met, meet(average));
      }
    }
    const nanoseconds took = waited(StepPart::kAverage);
    parts_.recorder.yielded(parts_.replicas->counters());
    parts_.recorder.averaged(took, met ? grant_.members.size() : 1, grant_.staleness,
                             grant_.node_bytes_per_second);
    return Unit{};
  }

  // Returns false if the average must be done before the next step. If the device itself moves
  // data, transfers to other replicas and transfers to other stages of that step could wait for
  // each other in a circle.
  bool begin_beside() {
    if (!grant_.overlaps || grant_.all || grant_.members.size() < 2) return false;
    if (parts_.links.on_device()) return false;
    device::Device& device = parts_.links.device();
    device::Buffer& memory = parts_.beside->memory;
    if (!memory) {
      const std::size_t bytes = StateAverage::bytes(parts_.stage);
      memory = device.allocate(bytes);
      if (!memory) return false;
      log_info("engine", "averages run during steps", {{"memory_bytes", std::to_string(bytes)}});
    }
    parts_.beside->average.emplace(*parts_.replicas, parts_.stage, device, grant_, memory)
        .post_next();
    return true;
  }

  Status finish_beside() {
    std::optional<StateAverage>& average = parts_.beside->average;
    if (!average) return Unit{};
    watch().lap(StepPart::kOther);
    WEIR_TRY([[maybe_unused]] const bool met, meet(*average));
    average.reset();
    waited(StepPart::kAverage);
    return Unit{};
  }

  // Ends a wait for other replicas.
  nanoseconds waited(StepPart part) {
    const nanoseconds took = watch().lap(part);
    idle_ += took;
    sync_wait_ += took;
    return took;
  }

  // Transfers by the device to other stages and to other replicas at the same time could wait for
  // each other in a circle.
  Status drain() {
    const SteadyTime since = parts_.clock.now();
    while (!parts_.links.drained()) {
      WEIR_OK(wait_for_peer(parts_, since, stop_));
    }
    return Unit{};
  }

  // Returns false if a member did not come and this rank keeps its model. Other ranks of this
  // replica may have averaged; all continue at the same step. If all replicas must become equal, a
  // missing member is an error.
  Result<bool> meet(StateAverage& average) {
    const SteadyTime since = parts_.clock.now();
    const nanoseconds deadline = from_seconds(average.grant().deadline_seconds);
    const nanoseconds patience = deadline.count() > 0 ? deadline : parts_.progress_deadline;
    do {
      for (bool done = false; !done;) {
        const Result<bool> waited = parts_.replicas->wait(parts_.clock.now() + kSlice, stop_);
        const bool late = waited && !*waited && parts_.clock.now() - since >= patience;
        if (!waited || late) {
          const Error error =
              waited ? Error{Code::kTimeout, "not all members came in time"} : waited.error();
          return give_up(average, error);
        }
        done = *waited;
        if (!done) WEIR_OK(look_around(since, "nothing from the other replicas"));
      }
      WEIR_OK(average.take());
    } while (average.post_next());
    return true;
  }

  Result<bool> give_up(StateAverage& average, const Error& error) {
    if (!parts_.go_on()) return Error{Code::kCancelled, "step was stopped"};
    if (average.grant().all) return error;
    WEIR_TRY(const int missing, average.abandon());
    parts_.round_failed(average.grant(), missing, error.message);
    return false;
  }

  schedule::LayerRange layers() const {
    return order_.plan.stages[static_cast<std::size_t>(order_.stage)];
  }
  std::size_t layers_after() const {
    return static_cast<std::size_t>(order_.plan.stages.back().last - layers().last);
  }

  double loss() const {
    if (sync_) return sync_->loss();
    return order_.own.ids.empty() ? parts_.stage.loss() : parts_.stage.mean_loss(losses());
  }

  // All ranks of the replica get the same verdict. In Exact mode all replicas do, because they have
  // the same gradients.
  Result<Verdict> hear_verdict() {
    StageLinks& links = parts_.links;
    Note note{.loss = std::numeric_limits<double>::quiet_NaN()};
    WEIR_TRY(note.squares, parts_.stage.gradient_squares());
    watch().lap(StepPart::kClip);
    if (links.last()) {
      note.loss = loss();
      if (parts_.stage.trains()) note.squares = with_loss(std::move(note.squares), note.loss);
    } else {
      WEIR_TRY(const auto bytes, wait_for_note(Channel::kBackward));
      const Note later = decode_note(bytes);
      note.squares.insert(note.squares.end(), later.squares.begin(), later.squares.end());
      note.loss = later.loss;
    }
    Verdict verdict{.squares = sum_in_order(note.squares), .loss = note.loss};
    if (!links.first()) {
      WEIR_OK(links.send_note(Channel::kBackward, encode_note(note)));
      WEIR_TRY(const auto bytes, wait_for_note(Channel::kForward));
      WEIR_TRY(verdict, decode_verdict(bytes, order_.grad_clip));
    }
    if (!links.last()) {
      WEIR_OK(links.send_note(Channel::kForward, encode_verdict(verdict, order_.grad_clip)));
    }
    return verdict;
  }

  Result<std::vector<std::byte>> wait_for_note(Channel channel) {
    const SteadyTime since = watch().last();
    watch().begin_part(channel == Channel::kForward ? StepPart::kVerdict : StepPart::kNote);
    auto note = parts_.links.take_note(channel);
    for (; !note; note = parts_.links.take_note(channel)) {
      WEIR_OK(wait_for_peer(parts_, since, stop_, channel, true));
    }
    idle_ += watch().lap(channel == Channel::kForward ? StepPart::kVerdict : StepPart::kNote);
    return *std::move(note);
  }

  void update(const Verdict& verdict) {
    watch().lap(StepPart::kOther);
    watch().begin_part(StepPart::kOptimizer);
    skipped_ = !end_step(parts_.stage, verdict, order_.grad_clip);
    end_.updated = true;
    const nanoseconds took = watch().lap(StepPart::kOptimizer);
    if (skipped_) return;
    parts_.recorder.optimizer_done(took);
    update_ += took;
  }

  StepRecord record(SteadyTime start) {
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
    result.idle_seconds = to_seconds(idle_);
    result.samples = micro_batches_ * samples_;
    result.in_flight_peak = peak_;
    result.held_peak = held_peak_;
    result.graph_launches = parts_.stage.graph_launches() - graph_launches_before_;
    return result;
  }

  const StepParts& parts_;
  const StepOrder& order_;
  std::stop_token stop_;
  const std::vector<schedule::Ids> to_compute_;  // by replica
  const std::vector<int> ids_;                   // that this replica computes
  const int micro_batches_;                      // their number
  const int step_micro_batches_;                 // over all replicas
  const int samples_;
  const std::int64_t graph_launches_before_;
  const schedule::Dispatcher dispatcher_;
  schedule::StageProgress progress_;

  TokenBatch tokens_;
  std::optional<ReplicaSync> sync_;
  std::vector<stage::TiedSum> tied_;
  std::set<std::size_t> tied_layers_;
  protocol::Grant grant_;  // Partial only: of this step
  std::optional<SteadyTime> first_start_;
  SteadyTime last_end_{};
  nanoseconds forward_{0}, backward_{0}, weights_{0}, update_{0}, coded_{0}, idle_{0},
      sync_wait_{0};
  int in_flight_at_start_ = 0, peak_ = 0, held_peak_ = 0;
  bool skipped_ = false;
  StepEnd end_;
};

}  // namespace

Status wait_for_peer(const StepParts& parts, SteadyTime since, std::stop_token stop,
                     std::optional<Channel> awaited, bool for_others) {
  for (;;) {
    WEIR_TRY(const bool came, parts.links.pump(parts.clock.now() + kSlice, stop));
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
  Runner runner(parts, order, std::move(stop));
  Result<StepRecord> record = runner.run();
  if (end != nullptr) *end = runner.end();
  return record;
}

}  // namespace weir::engine
