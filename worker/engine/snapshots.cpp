// SPDX-License-Identifier: Apache-2.0
// Snapshots in the engine: taken between two steps, and gone back to where a generation begins with
// a step that lies behind this rank.
#include "worker/engine/snapshots.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "worker/base/log.h"
#include "worker/base/text.h"
#include "worker/device/system_memory.h"
#include "worker/engine/engine.h"
#include "worker/engine/generation.h"
#include "worker/engine/state_move.h"
#include "worker/schedule/neighbors.h"

namespace weir::engine {
namespace {

std::int64_t bytes_kept(const protocol::Held& kept, const stage::Model& model) {
  std::int64_t bytes = 0;
  for (int layer = kept.first; layer <= kept.last; ++layer) {
    bytes += stage::save_copy_bytes(model.layers[static_cast<std::size_t>(layer)]);
  }
  return bytes;
}

}  // namespace

// Why there is no memory for snapshots beside the plan in force; "" if there is. Beside a device
// with memory of its own the container's memory is asked when a snapshot is taken.
std::string Engine::no_room_for_snapshots(std::int64_t more) const {
  if (!parts_.device.is_host()) return "";
  const schedule::Plan& plan = generation_->current.plan;
  const int stage = generation_->place.stage;
  const auto bytes_with = [&](int copies) {
    return schedule::memory_bytes(stage_memory(plan, stage, parts_.model, copies), plan.schedule,
                                  stage);
  };
  const int others = copies_for_saves() ? 1 : 0;
  const std::int64_t without = bytes_with(others);
  const std::int64_t copies = bytes_with(others + schedule::kSnapshotCopies) - without + more;
  const std::int64_t free =
      std::max<std::int64_t>(0, usable_bytes(parts_.device.memory_bytes()) - without);
  if (copies <= free) return "";
  return "snapshots need " + megabytes(copies) + ", " + megabytes(free) +
         " are free beside the stage";
}

// Host memory for snapshots, those included that are kept; -1 if the stage lies there, too.
std::int64_t Engine::room_beside_device() const {
  if (parts_.device.is_host() || parts_.snapshots == nullptr) return -1;
  std::int64_t room = device::read_system_memory().free;
  for (const protocol::Held& kept : parts_.snapshots->inventory().held) {
    room += bytes_kept(kept, parts_.model);
  }
  return room;
}

void Engine::on_save_of_snapshot(const protocol::Save& order) {
  protocol::Saved answer{.step = order.step, .files = {}, .snapshot = true};
  if (parts_.snapshots == nullptr) {
    answer.error = "has no --recovery-dir";
    return mailbox_.tell(answer);
  }
  if (order.copy) return copy_snapshot(order);
  // A rank that leaves cannot stop in a step that it has begun.
  const bool begun = in_step_ && leave_saved_at_.load() != 0;
  const std::int64_t at = begun ? step_ + 1 : step_;
  if (!generation_ || !generation_->trains() || at > order.step) {
    answer.late = true;
    answer.at = at;
    return mailbox_.tell(answer);
  }
  snapshot_at_ = order.step;
  snapshot_if_due();
}

void Engine::copy_snapshot(const protocol::Save& order) {
  protocol::Saved answer{.step = order.step, .files = {}, .snapshot = true, .copy = true};
  if (!generation_ || !generation_->trains()) {
    answer.error = "it does not train";
    return mailbox_.tell(answer);
  }
  std::int64_t bytes = 0;
  for (const protocol::SavedFile& file : order.copy->files) bytes += file.bytes;
  for (const protocol::Held& other : parts_.snapshots->inventory().held) {
    if (other.copy && other.step == order.step) bytes += bytes_kept(other, parts_.model);
  }
  answer.error = no_room_for_snapshots(schedule::kNeighborCopies * bytes);
  answer.trouble = protocol::SaveTrouble::kFull;
  if (!answer.error.empty()) return mailbox_.tell(answer);
  parts_.snapshots->copy(order, !parts_.device.is_host());
}

void Engine::snapshot_if_due() {
  if (snapshot_at_ != step_) return;
  snapshot_at_.reset();
  if (!generation_ || !generation_->trains()) return;  // its round is over
  if (const std::string reason = no_room_for_snapshots(); !reason.empty()) {
    return mailbox_.tell(
        protocol::Saved{.step = step_, .error = reason, .files = {}, .snapshot = true});
  }
  const SteadyTime start = parts_.clock.now();
  parts_.snapshots->take(*generation_->stage, generation_->layers, step_, compressed_steps_);
  if (!options_.saves) saving_.copied = step_;
  stopwatch_.cut_out(StepPart::kSave, start);
}

// With several replicas no snapshots are taken, so old ones would only take memory.
void Engine::begin_snapshots() {
  snapshot_at_.reset();
  if (parts_.snapshots == nullptr) return;
  const bool goes_on = generation_->current.plan.replica_count() == 1;
  parts_.snapshots->begin(generation_->history, goes_on ? generation_->start : -1);
  tell_snapshots_of_plan();
}

void Engine::tell_snapshots_of_plan() {
  if (parts_.snapshots == nullptr) return;
  const Prepared& current = generation_->current;
  parts_.snapshots->runs(current.plan.revision, current.incarnation);
}

// Memory does not suffice for two stages, so what the rank holds goes first. The snapshot stays.
Status Engine::roll_back(const schedule::Plan& plan, std::int64_t at_step) {
  if (parts_.snapshots == nullptr || schedule::averages(plan)) return Unit{};
  std::optional<schedule::LayerRange> layers;
  if (plan.state == schedule::StateMove::kMove) {
    const schedule::LayerHolder* const own = holder_of(plan, options_.identity);
    if (own != nullptr) layers = own->layers;
  } else if (plan.state == schedule::StateMove::kKeep) {
    const std::optional<schedule::RankPlace> own = place_of(plan, options_.identity);
    if (own) layers = plan.stages[static_cast<std::size_t>(own->stage)];
  }
  if (!layers || (holdings_.holds(*layers) && step_ == at_step)) return Unit{};
  const protocol::Inventory kept = parts_.snapshots->inventory();
  const auto has = std::ranges::find_if(kept.held, [&](const protocol::Held& one) {
    return one.step == at_step && schedule::LayerRange{one.first, one.last} == *layers;
  });
  if (has == kept.held.end()) return Unit{};
  log_info(kRoom, "goes back to its snapshot", {{"from_step", step_}, {"step", at_step}});
  generation_.reset();
  replace_holding({});
  saving_ = Saving{};
  step_ = 0;  // until the stage is filled
  WEIR_TRY(std::unique_ptr<stage::Stage> made,
           parts_.make_stage(layers->first, layers->last, stage::Initial::kFromElsewhere));
  WEIR_OK(parts_.snapshots->load(*made, at_step));
  step_ = at_step;
  compressed_steps_ = has->compressed_steps;
  replace_holding({.stage = std::move(made), .layers = *layers, .history = kept.history});
  return Unit{};
}

}  // namespace weir::engine
