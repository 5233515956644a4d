// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/replica_sync.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "worker/base/check.h"

namespace weir::engine {
namespace {

// Elements of one all-reduce: 16 MB of sums, 8 MB of gradients. That is large enough to make
// latency negligible, and small enough to send the first buckets while others are being computed.
constexpr std::size_t kBucket = std::size_t{2} << 20U;

struct SummaryHead {  // little-endian: the product runs on no other machines
  std::uint64_t step;
  std::uint32_t epoch, incarnation, next_epoch, losses;
};

}  // namespace

std::size_t summary_bytes(int losses) {
  return sizeof(SummaryHead) + static_cast<std::size_t>(losses) * sizeof(double);
}

std::vector<std::byte> encode_summary(const StepSummary& summary) {
  const SummaryHead head{.step = summary.step,
                         .epoch = summary.epoch,
                         .incarnation = summary.incarnation,
                         .next_epoch = summary.next_epoch,
                         .losses = static_cast<std::uint32_t>(summary.losses.size())};
  std::vector<std::byte> bytes(summary_bytes(static_cast<int>(summary.losses.size())));
  std::memcpy(bytes.data(), &head, sizeof head);
  if (!summary.losses.empty()) {
    std::memcpy(bytes.data() + sizeof head, summary.losses.data(),
                summary.losses.size() * sizeof(double));
  }
  return bytes;
}

Result<StepSummary> decode_summary(std::span<const std::byte> bytes, int losses) {
  SummaryHead head{};
  if (bytes.size() != summary_bytes(losses)) return invalid("step summary has a wrong size");
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.losses != static_cast<std::uint32_t>(losses)) {
    return invalid("step summary with a wrong number of losses");
  }
  StepSummary summary{.step = head.step,
                      .epoch = head.epoch,
                      .incarnation = head.incarnation,
                      .next_epoch = head.next_epoch,
                      .losses = std::vector<double>(head.losses)};
  if (losses > 0) {
    std::memcpy(summary.losses.data(), bytes.data() + sizeof head,
                summary.losses.size() * sizeof(double));
  }
  return summary;
}

std::uint32_t agreed_epoch(const std::vector<StepSummary>& summaries) {
  const bool all = std::ranges::all_of(summaries, [&](const StepSummary& summary) {
    return summary.next_epoch == summaries.front().next_epoch;
  });
  return all && !summaries.empty() ? summaries.front().next_epoch : 0;
}

ReplicaSync::ReplicaSync(transport::Collective& collective, stage::Stage& stage,
                         const schedule::Plan& plan, std::vector<schedule::Ids> ids,
                         int incarnation, std::int64_t step, bool last_stage)
    : collective_(collective),
      stage_(stage),
      plan_(plan),
      ids_(std::move(ids)),
      incarnation_(incarnation),
      step_(step),
      last_stage_(last_stage),
      members_(plan.micro_batches.size()),
      layers_(stage.layer_sums()),
      summaries_(std::make_shared<std::vector<std::vector<std::byte>>>()) {
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
                            .exact_sums = true,
                            .on_device = true});
  }
}

void ReplicaSync::send_card(std::uint32_t next_epoch, std::vector<double> losses) {
  const StepSummary summary{.step = static_cast<std::uint64_t>(step_),
                            .epoch = plan_.revision,
                            .incarnation = static_cast<std::uint32_t>(incarnation_),
                            .next_epoch = next_epoch,
                            .losses = std::move(losses)};
  std::vector<std::size_t> sizes;
  for (const schedule::Ids& ids : ids_)
    sizes.push_back(summary_bytes(last_stage_ ? schedule::count_of(ids) : 0));
  collective_.all_gather({.tag = next_tag(),
                          .members = members_,
                          .own = encode_summary(summary),
                          .sizes = std::move(sizes),
                          .blocks = summaries_});
}

// Added in the order of their ids, the losses equal those of one replica with the whole batch.
Status ReplicaSync::take_cards() {
  WEIR_CHECK(summaries_->size() == members_.size(), "all summaries are here");
  std::vector<StepSummary> summaries;
  std::size_t total = 0;
  for (const schedule::Ids& ids : ids_) total += static_cast<std::size_t>(schedule::count_of(ids));
  std::vector<double> losses(last_stage_ ? total : 0);  // by id
  for (std::size_t r = 0; r < summaries_->size(); ++r) {
    WEIR_TRY(StepSummary summary,
             decode_summary((*summaries_)[r], last_stage_ ? schedule::count_of(ids_[r]) : 0));
    if (summary.epoch != plan_.revision ||
        summary.incarnation != static_cast<std::uint32_t>(incarnation_)) {
      return Error{Code::kConflict, "replica " + std::to_string(r) + " runs plan " +
                                        std::to_string(summary.epoch) + " in step " +
                                        std::to_string(step_) + ", this rank plan " +
                                        std::to_string(plan_.revision)};
    }
    auto from = summary.losses.begin();
    for (const schedule::IdRange& range : last_stage_ ? ids_[r] : schedule::Ids()) {
      std::copy_n(from, range.count, losses.begin() + range.first);
      from += range.count;
    }
    summaries.push_back(std::move(summary));
  }
  if (last_stage_) loss_ = stage_.mean_loss(losses);
  next_epoch_ = agreed_epoch(summaries);
  return Unit{};
}

}  // namespace weir::engine
