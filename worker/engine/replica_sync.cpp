// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/replica_sync.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <string>

#include "worker/base/check.h"

namespace weir::engine {
namespace {

// Elements of one all-reduce: 16 MB of sums, 8 MB of gradients. That is large enough to make
// latency negligible, and small enough to send the first buckets while others are being computed.
constexpr std::size_t kBucket = std::size_t{2} << 20U;

struct CardHead {  // little-endian: the product runs on no other machines
  std::uint64_t step;
  std::uint32_t epoch, incarnation, next_epoch, losses;
};

}  // namespace

std::size_t card_bytes(int losses) {
  return sizeof(CardHead) + static_cast<std::size_t>(losses) * sizeof(double);
}

std::vector<std::byte> encode_card(const StepCard& card) {
  const CardHead head{.step = card.step,
                      .epoch = card.epoch,
                      .incarnation = card.incarnation,
                      .next_epoch = card.next_epoch,
                      .losses = static_cast<std::uint32_t>(card.losses.size())};
  std::vector<std::byte> bytes(card_bytes(static_cast<int>(card.losses.size())));
  std::memcpy(bytes.data(), &head, sizeof head);
  if (!card.losses.empty()) {
    std::memcpy(bytes.data() + sizeof head, card.losses.data(),
                card.losses.size() * sizeof(double));
  }
  return bytes;
}

Result<StepCard> decode_card(std::span<const std::byte> bytes, int losses) {
  CardHead head{};
  if (bytes.size() != card_bytes(losses)) {
    return Error{Code::kInvalid, "step card has a wrong size"};
  }
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.losses != static_cast<std::uint32_t>(losses)) {
    return Error{Code::kInvalid, "step card with a wrong number of losses"};
  }
  StepCard card{.step = head.step,
                .epoch = head.epoch,
                .incarnation = head.incarnation,
                .next_epoch = head.next_epoch,
                .losses = std::vector<double>(head.losses)};
  if (losses > 0) {
    std::memcpy(card.losses.data(), bytes.data() + sizeof head,
                card.losses.size() * sizeof(double));
  }
  return card;
}

std::uint32_t agreed_epoch(const std::vector<StepCard>& cards) {
  const bool all = std::ranges::all_of(
      cards, [&](const StepCard& card) { return card.next_epoch == cards.front().next_epoch; });
  return all && !cards.empty() ? cards.front().next_epoch : 0;
}

ReplicaSync::ReplicaSync(transport::Collective& collective, stage::Stage& stage,
                         const schedule::Plan& plan, int incarnation, std::int64_t step,
                         bool last_stage)
    : collective_(collective),
      stage_(stage),
      plan_(plan),
      incarnation_(incarnation),
      step_(step),
      last_stage_(last_stage),
      members_(plan.micro_batches.size()),
      layers_(stage.layer_sums()),
      cards_(std::make_shared<std::vector<std::vector<std::byte>>>()) {
  std::iota(members_.begin(), members_.end(), 0);
}

transport::CollectiveTag ReplicaSync::next_tag() {
  return {.step = static_cast<std::uint64_t>(step_), .part = parts_++};
}

void ReplicaSync::layer_is_summed(std::size_t index) {
  WEIR_CHECK(index < layers_.size(), "a layer of this stage");
  const stage::LayerSum& layer = layers_[index];
  for (std::size_t first = 0; first < layer.sums.size(); first += kBucket) {
    const std::size_t count = std::min(kBucket, layer.sums.size() - first);
    collective_.all_reduce({.tag = next_tag(),
                            .members = members_,
                            .count = count,
                            .in = std::as_bytes(layer.sums.subspan(first, count)),
                            .out = std::as_writable_bytes(layer.gradient.subspan(first, count)),
                            .combine = transport::sum_doubles_to_floats(),
                            .on_device = true});
  }
}

void ReplicaSync::finish_own(std::uint32_t next_epoch) {
  const StepCard card{.step = static_cast<std::uint64_t>(step_),
                      .epoch = plan_.revision,
                      .incarnation = static_cast<std::uint32_t>(incarnation_),
                      .next_epoch = next_epoch,
                      .losses = last_stage_ ? stage_.loss_sums() : std::vector<double>()};
  std::vector<std::size_t> sizes;
  for (const int share : plan_.micro_batches) sizes.push_back(card_bytes(last_stage_ ? share : 0));
  collective_.all_gather({.tag = next_tag(),
                          .members = members_,
                          .own = encode_card(card),
                          .sizes = std::move(sizes),
                          .blocks = cards_});
}

// Replica r has the micro-batches that follow those of r-1. Added in this order, the losses equal
// those of one replica with the whole batch.
Status ReplicaSync::take_results() {
  WEIR_CHECK(cards_->size() == members_.size(), "all cards are here");
  std::vector<StepCard> cards;
  std::vector<double> losses;
  for (std::size_t r = 0; r < cards_->size(); ++r) {
    WEIR_TRY(StepCard card, decode_card((*cards_)[r], last_stage_ ? plan_.micro_batches[r] : 0));
    if (card.epoch != plan_.revision ||
        card.incarnation != static_cast<std::uint32_t>(incarnation_)) {
      return Error{Code::kConflict, "replica " + std::to_string(r) + " runs plan " +
                                        std::to_string(card.epoch) + " in step " +
                                        std::to_string(step_) + ", this rank plan " +
                                        std::to_string(plan_.revision)};
    }
    losses.insert(losses.end(), card.losses.begin(), card.losses.end());
    cards.push_back(std::move(card));
  }
  if (last_stage_) loss_ = stage_.mean_loss(losses);
  next_epoch_ = agreed_epoch(cards);
  stage_.gradients_are_set();
  return Unit{};
}

}  // namespace weir::engine
