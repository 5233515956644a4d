// SPDX-License-Identifier: Apache-2.0
// The end of a step: sums over replicas, cards, the verdict, and a part that is kept.
#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "worker/base/check.h"
#include "worker/base/units.h"
#include "worker/engine/step_runner.h"
#include "worker/stage/layer.h"

namespace weir::engine {

using std::chrono::nanoseconds;
using transport::Channel;

constexpr std::size_t kTiedBucket = std::size_t{1} << 20U;  // doubles of one exchange, 8 MB

// The micro-batches in the sums of each replica at the end of its part.
std::vector<schedule::Ids> StepRunner::ids_by_replica() const {
  std::vector<schedule::Ids> ids = to_compute_;
  for (std::size_t r = 0; r < order_.kept.size(); ++r) {
    ids[r] = schedule::united(ids[r], order_.kept[r]);
  }
  return ids;
}

// The losses of this replica, by rising id.
std::vector<double> StepRunner::losses() const {
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
Result<Verdict> StepRunner::agree(SteadyTime start) {
  if (sync_) WEIR_OK(wait_for_sums());
  end_.summed = true;
  end_.record = record(start);
  if (sync_) WEIR_OK(wait_for_cards());
  return hear_verdict();
}

// The step cannot end. The other stages of this replica may still compute their part, so they
// get what they need of this one.
void StepRunner::keep_share(SteadyTime start) {
  while (!parts_.links.tensors_received()) {
    if (!wait_for_peer(parts_, start, stop_)) return;
  }
  end_.share = Share{.ids = schedule::united(to_compute_[static_cast<std::size_t>(order_.replica)],
                                             order_.own.ids),
                     .losses = losses()};
}

// While the last micro-batch adds to them, the sums of the layers become complete one after the
// other; those of layers with tied tables wait for the other end.
void StepRunner::tell_of_the_last_sums(int micro_batch) {
  if (!sync_ || micro_batch + 1 < micro_batches_) return;
  parts_.stage.on_layer_summed([this](std::size_t i) {
    if (!tied_layers_.contains(i)) sync_->layer_is_summed(i);
  });
}

// A replica with nothing left to compute has them all.
void StepRunner::tell_of_sums_kept() {
  const std::size_t layers = parts_.stage.layer_sums().size();
  for (std::size_t i = layers; i-- > 0;) {
    if (!tied_layers_.contains(i)) sync_->layer_is_summed(i);
  }
}

// Both ends of a tied table get the sum of both.
Status StepRunner::join_ties() {
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

Status StepRunner::add_other_end(std::span<double> sums, std::uint32_t part, SteadyTime since) {
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

// Waits until this rank has the gradients of this step.
Status StepRunner::wait_for_sums() {
  watch().lap(StepPart::kOther);
  watch().begin_part(StepPart::kSum);
  WEIR_OK(wait_for_collective(*parts_.replicas, watch().last(), "nothing from the other replicas"));
  waited(StepPart::kSum);
  sync_->sums_are_complete();
  return Unit{};
}

// Waits until all replicas have them. A card leaves behind complete sums, so that a rank with all
// cards knows it.
Status StepRunner::wait_for_cards() {
  sync_->send_card(parts_.next_epoch ? parts_.next_epoch() : 0, losses());
  watch().lap(StepPart::kOther);
  watch().begin_part(StepPart::kSum);
  WEIR_OK(wait_for_collective(*parts_.replicas, watch().last(), "nothing from the other replicas"));
  waited(StepPart::kSum);
  parts_.recorder.synchronized(parts_.replicas->counters(), sync_wait_);
  return sync_->take_cards();
}

// Called between two checks of the collective or of the coordinator's answer.
Status StepRunner::look_around(SteadyTime since, const char* missing, bool for_others) {
  if (!goes_on(parts_, for_others)) return Error{Code::kCancelled, "step was stopped"};
  WEIR_OK(parts_.links.poll(stop_));
  if (parts_.clock.now() - since < parts_.progress_deadline) return Unit{};
  return Error{Code::kTimeout, std::string(missing) + " before the deadline"};
}

Status StepRunner::wait_for_collective(transport::Collective& collective, SteadyTime since,
                                       const char* missing) {
  for (;;) {
    WEIR_TRY(const bool done, collective.wait(parts_.clock.now() + kStepSlice, stop_));
    if (done) return Unit{};
    WEIR_OK(look_around(since, missing, &collective == parts_.replicas));
  }
}

// Ends a wait for other replicas.
nanoseconds StepRunner::waited(StepPart part) {
  const nanoseconds took = watch().lap(part);
  idle_ += took;
  sync_wait_ += took;
  return took;
}

schedule::LayerRange StepRunner::layers() const {
  return order_.plan.stages[static_cast<std::size_t>(order_.stage)];
}

std::size_t StepRunner::layers_after() const {
  return static_cast<std::size_t>(order_.plan.stages.back().last - layers().last);
}

double StepRunner::loss() const {
  if (sync_) return sync_->loss();
  return order_.own.ids.empty() ? parts_.stage.loss() : parts_.stage.mean_loss(losses());
}

// All ranks of the replica get the same verdict. In Exact mode all replicas do, because they have
// the same gradients.
Result<Verdict> StepRunner::hear_verdict() {
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

Result<std::vector<std::byte>> StepRunner::wait_for_note(Channel channel) {
  const SteadyTime since = watch().last();
  watch().begin_part(channel == Channel::kForward ? StepPart::kVerdict : StepPart::kNote);
  auto note = parts_.links.take_note(channel);
  for (; !note; note = parts_.links.take_note(channel)) {
    WEIR_OK(wait_for_peer(parts_, since, stop_, channel, true));
  }
  idle_ += watch().lap(channel == Channel::kForward ? StepPart::kVerdict : StepPart::kNote);
  return *std::move(note);
}

}  // namespace weir::engine
