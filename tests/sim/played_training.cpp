// SPDX-License-Identifier: Apache-2.0
// Steps and snapshots of a played rank.
#include <algorithm>
#include <string>
#include <utility>

#include "tests/sim/played_rank.h"
#include "worker/schedule/step_ids.h"

namespace weir::sim {
namespace {

constexpr double kStep = 0.4;         // s
constexpr double kSnapshot = 0.002;   // s
constexpr double kCommitGrace = 0.2;  // s, for a COMMIT behind which the links end

}  // namespace

bool PlayedRank::in(const Generation& other) const {
  return generation_ && !generation_->broken && generation_->plan.revision == other.plan.revision &&
         generation_->incarnation == other.incarnation && generation_->history == other.history;
}

std::vector<PlayedRank*> PlayedRank::peers() {
  std::vector<PlayedRank*> result;
  for (const schedule::RankPlace& place : generation_->plan.ranks) {
    PlayedRank* const other = network_.running(place.pod_uid);
    if (other != nullptr && other->in(*generation_) && other->trains()) result.push_back(other);
  }
  return result;
}

bool PlayedRank::stands_together() {
  const auto all = peers();
  return all.size() == generation_->plan.ranks.size() &&
         std::ranges::all_of(all, [&](const PlayedRank* other) {
           const bool enters = other->pending_ && other->pending_->commit.at_step <= other->step();
           return other->step() == step() && !enters && !other->holds_step() &&
                  network_.reach(*this, *other);
         });
}

void PlayedRank::train() {
  if (!trains() || generation_->stage != 0 || generation_->replica != 0) return;
  if (!stands_together()) {
    generation_->steps_since = network_.now();
  } else if (network_.now() - generation_->steps_since >= kStep) {
    generation_->steps_since = network_.now();
    for (PlayedRank* other : peers()) other->end_step();
  }
}

void PlayedRank::tear_step() {
  if (!trains()) return;
  if (stands_together() && network_.chance(2)) {
    for (PlayedRank* other : peers()) {
      if (network_.chance(2)) {
        other->end_step();
      } else {
        other->held_->summed = true;
      }
    }
  }
}

void PlayedRank::notice_ended_links() {
  for (const schedule::RankPlace& place : generation_->plan.ranks) {
    const PlayedRank* const other = network_.running(place.pod_uid);
    const bool open =
        other != nullptr && (!network_.reach(*this, *other) || other->in(*generation_));
    if (open) continue;
    drop_step(place.replica != generation_->replica);
    tells_lost_at_ = network_.now() + kCommitGrace;
    return;
  }
}

// Of a replica that is whole a rank mostly finishes its part first.
void PlayedRank::drop_step(bool elsewhere) {
  Generation& now = *generation_;
  now.broken = true;
  snapshot_at_.reset();
  const auto before = std::exchange(held_->sums, std::nullopt);
  if (elsewhere && !held_->summed && !network_.chance(4)) {
    const auto parts = schedule::ids_to_compute(now.plan.micro_batches, now.kept);
    held_->sums =
        protocol::KeptSums{.ids = schedule::united(before ? before->ids : schedule::Ids{},
                                                   parts[static_cast<std::size_t>(now.replica)]),
                           .micro_batch_size = now.plan.schedule.micro_batch_size,
                           .micro_batches = static_cast<int>(now.plan.step_micro_batches())};
  }
  tell_inventory();
}

void PlayedRank::tell_lost() {
  tells_lost_at_.reset();
  if (!generation_ || !generation_->broken || pending_) return;
  mailbox_.tell(protocol::PeerLost{.replica = generation_->replica,
                                   .stage = generation_->stage,
                                   .revision = generation_->plan.revision,
                                   .reason = "a link ended",
                                   .finish_part = held_->sums.has_value()});
}

void PlayedRank::end_step() {
  check_sums();
  ++held_->step;
  held_->summed = false;
  held_->sums.reset();
  generation_->kept.clear();
  verdict_ = 1;
  network_.ends_step(*this);
  mailbox_.tell(protocol::StageStatus{
      .epoch = generation_->plan.revision,
      .step = held_->step,
      .replica = generation_->replica,
      .stage = generation_->stage,
      .loss = 1,
      .step_seconds = kStep,
      .samples =
          generation_->stage == 0
              ? generation_->plan.micro_batches[static_cast<std::size_t>(generation_->replica)] *
                    generation_->plan.schedule.micro_batch_size
              : 0});
  if (snapshot_at_ == held_->step) take_snapshot();
}

// What all replicas have at the end of the step.
void PlayedRank::check_sums() const {
  const Generation& now = *generation_;
  const int total = static_cast<int>(now.plan.step_micro_batches());
  const auto parts = schedule::ids_to_compute(now.plan.micro_batches, now.kept);
  schedule::Ids all;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const schedule::Ids kept = now.kept.empty() ? schedule::Ids{} : now.kept[r];
    for (const schedule::Ids& ids : {kept, parts[r]}) {
      if (schedule::overlap(all, ids)) network_.fail("a micro-batch counts twice");
      all = schedule::united(all, ids);
    }
  }
  if (all != schedule::Ids{{0, total}}) network_.fail("a micro-batch is missing");
  const schedule::Ids sums = held_->sums ? held_->sums->ids : schedule::Ids{};
  if (!now.kept.empty() && sums != now.kept[static_cast<std::size_t>(now.replica)]) {
    network_.fail("a rank keeps other sums than COMMIT says");
  }
}

// ---- snapshots ----

void PlayedRank::on_save(const protocol::Save& save) {
  if (!save.snapshot) return network_.fail("a checkpoint is ordered");
  if (save.copy) return copy(save);
  protocol::Saved answer{.step = save.step, .files = {}, .snapshot = true};
  if (!trains() || step() > save.step) {
    answer.late = true;
    answer.at = step();
    return mailbox_.tell(answer);
  }
  snapshot_at_ = save.step;
  if (step() == save.step) take_snapshot();
}

void PlayedRank::take_snapshot() {
  const std::int64_t step = *std::exchange(snapshot_at_, std::nullopt);
  left_from_ = step;
  std::erase_if(shelf_.own, [&](const auto& one) { return one.step == step; });
  while (shelf_.own.size() > 1) shelf_.own.erase(shelf_.own.begin());
  shelf_.own.push_back({step, held_->layers});
  protocol::Saved answer{
      .step = step, .files = {}, .snapshot = true, .copy = false, .seconds = kSnapshot};
  for (int layer = held_->layers.first; layer <= held_->layers.last; ++layer) {
    answer.files.push_back({.name = "layer-" + std::to_string(layer), .bytes = 1000, .sha256 = ""});
  }
  mailbox_.tell(answer);
}

void PlayedRank::copy(const protocol::Save& save) {
  protocol::Saved answer{.step = save.step, .files = {}, .snapshot = true, .copy = true};
  const PlayedRank* const from = network_.at_ip(save.copy->ip);
  const auto has = [&](const Shelf::Kept& one) {
    return one.step == save.step && one.layers.first == save.copy->first_layer;
  };
  if (!trains()) {
    answer.error = "it does not train";
  } else if (from == nullptr || !network_.reach(*this, *from)) {
    answer.error = "no answer from " + save.copy->ip;
  } else if (const auto kept = std::ranges::find_if(from->shelf_.own, has);
             kept == from->shelf_.own.end()) {
    answer.error = "it has no such snapshot";
  } else {
    std::erase_if(shelf_.copies, has);
    shelf_.copies.push_back(*kept);
  }
  mailbox_.tell(answer);
}

void PlayedRank::on_saved(const protocol::Saved& saved) {
  if (!saved.snapshot) return;
  if (saved.leave) released_ = true;
  shelf_.taken_by_all(saved.step, saved.error.empty());
}

}  // namespace weir::sim
