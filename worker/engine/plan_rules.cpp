// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/plan_rules.h"

#include <algorithm>

#include "worker/base/text.h"
#include "worker/engine/state_move.h"
#include "worker/schedule/neighbors.h"

namespace weir::engine {
namespace {

// The planner counts the bytes that a stage really holds.
static_assert(schedule::kStateFactor == stage::kStateFactor);
static_assert(schedule::kCopyFactor == stage::kSaveCopyFactor);

std::int64_t copy_bytes(schedule::LayerRange layers, const stage::Model& model) {
  std::int64_t bytes = 0;
  for (int i = layers.first; i <= layers.last; ++i) {
    bytes += stage::save_copy_bytes(model.layers[static_cast<std::size_t>(i)]);
  }
  return bytes;
}

// Bytes of the stage that a rank holds during a move; 0 if the stage is kept as it is.
std::int64_t held_bytes(const schedule::Plan& plan, const schedule::RankPlace& place,
                        const Identity& identity, const stage::Model& model) {
  const schedule::LayerHolder* const own = holder_of(plan, identity);
  if (own == nullptr || own->layers == plan.stages[static_cast<std::size_t>(place.stage)]) return 0;
  std::int64_t bytes = 0;
  for (int i = own->layers.first; i <= own->layers.last; ++i) {
    const stage::LayerInfo& layer = model.layers[static_cast<std::size_t>(i)];
    bytes += stage::state_bytes(model.options.precision, layer.parameter_bytes, layer.frozen_bytes);
  }
  return bytes;
}

// The bytes of the larger one of the encoded forms that cross a boundary; 0 if both are raw.
std::int64_t encoded_bytes(const schedule::Plan& plan, int boundary, std::int64_t raw_bytes,
                           int number_bytes) {
  std::int64_t most = 0;
  for (const auto* direction : {&plan.codecs.forward, &plan.codecs.backward}) {
    const schedule::Codec codec = schedule::codec_of(*direction, boundary);
    if (codec == schedule::Codec::kRaw) continue;
    most =
        std::max(most, wire_bytes(codec, raw_bytes, plan.schedule.micro_batch_size, number_bytes));
  }
  return most;
}

// Layers of one's own may hand on several tensors, or numbers of another type, as one message.
void check_codecs_of_own_layers(const schedule::Plan& plan, const stage::Model& model,
                                std::vector<std::string>& reasons) {
  for (int b = 0; b + 1 < plan.stage_count(); ++b) {
    const bool raw = codec_of(plan.codecs.forward, b) == schedule::Codec::kRaw &&
                     codec_of(plan.codecs.backward, b) == schedule::Codec::kRaw;
    if (raw) continue;
    const auto last = static_cast<std::size_t>(plan.stages[static_cast<std::size_t>(b)].last);
    reasons.push_back("codecs: link " + std::to_string(b) + "-" + std::to_string(b + 1) +
                      " cannot be compressed: layer " + model.layers[last].id +
                      " is one's own and may hand on several tensors");
  }
}

void check_codecs(const schedule::Plan& plan, stage::Precision precision,
                  std::vector<std::string>& reasons) {
  if (precision == stage::Precision::kFp32) return;
  const auto check = [&](const char* field, const std::vector<schedule::Codec>& codecs) {
    const auto at = std::ranges::find(codecs, schedule::Codec::kBf16);
    if (at == codecs.end()) return;
    reasons.push_back("codecs." + std::string(field) + "[" + std::to_string(at - codecs.begin()) +
                      "]: BF16 needs float32 tensors");
  };
  check("forward", plan.codecs.forward);
  check("backward", plan.codecs.backward);
}

}  // namespace

std::optional<schedule::RankPlace> place_of(const schedule::Plan& plan, const Identity& identity) {
  for (const schedule::RankPlace& rank : plan.ranks) {
    const bool both_uids = !rank.pod_uid.empty() && !identity.pod_uid.empty();
    const bool same = both_uids ? rank.pod_uid == identity.pod_uid : rank.pod == identity.pod;
    if (same) return rank;
  }
  return std::nullopt;
}

schedule::StageMemory stage_memory(const schedule::Plan& plan, int stage, const stage::Model& model,
                                   int copies) {
  const auto index = static_cast<std::size_t>(stage);
  const schedule::LayerRange range = plan.stages[index];
  const std::int64_t samples = plan.schedule.micro_batch_size;
  schedule::StageMemory memory;
  std::int64_t transient = 0;
  for (int i = range.first; i <= range.last; ++i) {
    const stage::LayerInfo& layer = model.layers[static_cast<std::size_t>(i)];
    const std::int64_t kept = layer.activation_bytes_per_sample * samples + layer.activation_bytes;
    const std::int64_t held = layer.held_bytes_per_sample * samples;
    memory.activation_bytes += kept;
    memory.held_bytes += held;
    memory.in_backward_bytes += std::max(kept, held);
    memory.static_bytes +=
        stage::state_bytes(model.options.precision, layer.parameter_bytes, layer.frozen_bytes);
    memory.static_bytes += copies * stage::save_copy_bytes(layer);
    const std::int64_t while_it_runs = plan.schedule.split ? layer.split_transient_bytes_per_sample
                                                           : layer.transient_bytes_per_sample;
    transient = std::max(transient, samples * while_it_runs + layer.transient_bytes);
  }
  memory.static_bytes += transient;
  const auto output_of = [&](int layer) {
    return model.layers[static_cast<std::size_t>(layer)].output_bytes_per_sample * samples;
  };
  if (stage > 0) memory.input_bytes = output_of(range.first - 1);
  if (stage + 1 < plan.stage_count()) memory.output_bytes = output_of(range.last);
  // While it is encoded or decoded, a tensor is there in both forms.
  const auto number_bytes = static_cast<int>(stage::element_bytes(model.options.precision));
  memory.static_bytes += encoded_bytes(plan, stage - 1, memory.input_bytes, number_bytes) +
                         encoded_bytes(plan, stage, memory.output_bytes, number_bytes);
  return memory;
}

std::int64_t usable_bytes(std::int64_t limit) {
  return static_cast<std::int64_t>(static_cast<double>(limit) * (1 - kMemoryReserve));
}

std::int64_t copies_bytes(const schedule::Plan& plan, int stage, const stage::Model& model) {
  const std::vector<int> keeper = schedule::neighbors(plan).keeper;
  const auto own = static_cast<std::size_t>(stage);
  std::int64_t bytes = schedule::kSnapshotCopies * copy_bytes(plan.stages[own], model);
  const auto kept = std::ranges::find(keeper, stage) - keeper.begin();
  if (kept < std::ssize(keeper)) {
    const schedule::LayerRange layers = plan.stages[static_cast<std::size_t>(kept)];
    bytes += schedule::kNeighborCopies * copy_bytes(layers, model);
  }
  return bytes;
}

std::vector<std::string> objections(const schedule::Plan& plan, const Identity& identity,
                                    const stage::Model& model, const Memory& memory) {
  std::vector<std::string> reasons =
      schedule::broken_rules(plan, static_cast<int>(model.layers.size()));
  check_codecs(plan, model.options.precision, reasons);
  if (!reasons.empty()) return reasons;
  if (model.source) check_codecs_of_own_layers(plan, model, reasons);
  if (!reasons.empty()) return reasons;
  const std::optional<schedule::RankPlace> place = place_of(plan, identity);
  if (!place) return reasons;
  std::int64_t held = 0;  // held beside the new stage until the others have fetched it
  if (plan.state == schedule::StateMove::kMove) {
    const auto layers = static_cast<int>(model.layers.size());
    for (const schedule::LayerHolder& holder : plan.holders) {
      const auto [first, last] = holder.layers;
      if (first < 0 || first > last || last >= layers) {
        return {"holders: pod " + holder.pod + " holds layers that the model does not have"};
      }
    }
    const Result<MoveParts> parts = parts_of_move(plan, identity);
    if (!parts) return {parts.error().message};
    held = held_bytes(plan, *place, identity, model);
  }

  const std::int64_t need =
      held + schedule::memory_bytes(stage_memory(plan, place->stage, model, memory.saves ? 1 : 0),
                                    plan.schedule, place->stage);
  const std::int64_t limit = usable_bytes(memory.limit);
  if (need > limit) {
    reasons.push_back("caps: stage " + std::to_string(place->stage) + " needs " +
                      std::to_string(need) + " bytes, " + std::to_string(limit) + " are available");
  } else if (memory.copies && plan.replica_count() == 1) {
    const std::int64_t copies = copies_bytes(plan, place->stage, model);
    const std::int64_t room = memory.copies_room < 0 ? limit - need : memory.copies_room;
    if (copies > room) reasons.push_back(schedule::no_room_for_copies(copies, room));
  }
  return reasons;
}

}  // namespace weir::engine
