// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/state_move.h"

#include <cstring>
#include <string>
#include <utility>

#include "worker/base/log.h"
#include "worker/engine/engine.h"
#include "worker/engine/generation.h"

namespace weir::engine {
namespace {

constexpr const char* kRoom = "engine";

bool holds(const schedule::LayerHolder& holder, int layer) {
  return holder.layers.first <= layer && layer <= holder.layers.last;
}

std::string text_of(schedule::LayerRange layers) {
  return std::to_string(layers.first) + ".." + std::to_string(layers.last);
}

std::vector<transport::StateRequest> requests_for(const schedule::Plan& plan,
                                                  const MoveParts& parts, stage::Stage& stage) {
  std::vector<transport::StateRequest> requests;
  for (const MovePart& part : parts.fetched) {
    const schedule::LayerHolder& holder = plan.holders[part.holder];
    requests.push_back({.from = {.stage = holder.stage,
                                 .ip = holder.ip,
                                 .data_port = holder.data_port,
                                 .node = holder.node},
                        .layers = memory_of(stage, part.layers)});
  }
  return requests;
}

}  // namespace

const schedule::LayerHolder* holder_of(const schedule::Plan& plan, const Identity& identity) {
  for (const schedule::LayerHolder& holder : plan.holders) {
    const bool both_uids = !holder.pod_uid.empty() && !identity.pod_uid.empty();
    if (both_uids ? holder.pod_uid == identity.pod_uid : holder.pod == identity.pod) return &holder;
  }
  return nullptr;
}

Result<MoveParts> parts_of_move(const schedule::Plan& plan, const Identity& identity) {
  MoveParts parts;
  const std::optional<schedule::RankPlace> place = place_of(plan, identity);
  if (!place) return parts;
  const schedule::LayerHolder* const own = holder_of(plan, identity);
  const schedule::LayerRange range = plan.stages[static_cast<std::size_t>(place->stage)];
  for (int layer = range.first; layer <= range.last; ++layer) {
    if (own != nullptr && holds(*own, layer)) {
      const bool goes_on = !parts.kept.empty() && parts.kept.back().last == layer - 1;
      if (goes_on) ++parts.kept.back().last;
      if (!goes_on) parts.kept.push_back({layer, layer});
      continue;
    }
    std::vector<std::size_t> holders;
    for (std::size_t i = 0; i < plan.holders.size(); ++i) {
      if (holds(plan.holders[i], layer)) holders.push_back(i);
    }
    if (holders.empty()) {
      return Error{Code::kInvalid,
                   "state: Move, but layer " + std::to_string(layer) + " is held by nobody"};
    }
    const std::size_t from = holders[static_cast<std::size_t>(place->replica) % holders.size()];
    const bool goes_on = !parts.fetched.empty() && parts.fetched.back().holder == from &&
                         parts.fetched.back().layers.last == layer - 1;
    if (goes_on) ++parts.fetched.back().layers.last;
    if (!goes_on) parts.fetched.push_back({from, {layer, layer}});
  }
  return parts;
}

std::vector<transport::LayerMemory> memory_of(stage::Stage& stage, schedule::LayerRange layers) {
  std::vector<transport::LayerMemory> memory;
  for (int layer = layers.first; layer <= layers.last; ++layer) {
    memory.push_back({.layer = layer, .parts = {}});
  }
  for (const stage::Parameter& parameter : stage.parameters()) {
    if (parameter.layer < layers.first || parameter.layer > layers.last) continue;
    auto& parts = memory[static_cast<std::size_t>(parameter.layer - layers.first)].parts;
    for (const auto values : {parameter.value, parameter.adam_m, parameter.adam_v}) {
      parts.push_back(std::as_writable_bytes(values));
    }
  }
  return memory;
}

Status copy_layers(stage::Stage& from, stage::Stage& to, schedule::LayerRange layers) {
  const auto source = memory_of(from, layers), target = memory_of(to, layers);
  for (std::size_t i = 0; i < source.size(); ++i) {
    bool equal = source[i].parts.size() == target[i].parts.size();
    for (std::size_t p = 0; equal && p < source[i].parts.size(); ++p) {
      const std::span<std::byte> in = source[i].parts[p], out = target[i].parts[p];
      equal = in.size() == out.size();
      if (equal && !in.empty()) std::memcpy(out.data(), in.data(), in.size());
    }
    if (!equal) {
      return Error{Code::kInvalid, "layer " + std::to_string(source[i].layer) +
                                       " has other parameters in the new stage"};
    }
  }
  return Unit{};
}

OfferedState::OfferedState(transport::StateExchange& exchange, const transport::StateKey& key,
                           std::unique_ptr<stage::Stage> stage, schedule::LayerRange layers)
    : exchange_(exchange), stage_(std::move(stage)), layers_(layers) {
  exchange_.offer(key, memory_of(*stage_, layers_));
}

transport::StateKey Engine::key_of_move(const Prepared& next, std::int64_t at_step) const {
  return {.job_uid = settings_.job_uid,
          .job_key = settings_.job_key,
          .revision = next.plan.revision,
          .incarnation = static_cast<std::uint16_t>(next.incarnation),
          .step = at_step};
}

// What the plan says this rank holds, it must hold, at that step: others count on it.
Status Engine::offer_state(const Prepared& next, std::int64_t at_step) {
  const schedule::LayerHolder* const own = holder_of(next.plan, settings_.identity);
  if (own == nullptr) return Unit{};
  if (parts_.state == nullptr) return Error{Code::kInvalid, "this worker cannot move state"};
  const bool have = generation_ && generation_->stage && generation_->layers == own->layers;
  if (!have || step_ != at_step) {
    return Error{Code::kConflict, "state Move: wanted is step " + std::to_string(at_step) +
                                      " of layers " + text_of(own->layers) +
                                      ", this rank stands at step " + std::to_string(step_) +
                                      (have ? "" : " of other layers")};
  }
  WEIR_TRY([[maybe_unused]] const Unit done, parts_.device.synchronize());
  offer_ = std::make_unique<OfferedState>(*parts_.state, key_of_move(next, at_step),
                                          std::move(generation_->stage), own->layers);
  return Unit{};
}

// The offer stands. A stage of the same layers goes on as it is; else a new one is filled from the
// old one and from other ranks.
Status Engine::move_stage(Generation& generation, const Prepared& next, std::int64_t at_step,
                          const std::stop_token& stop) {
  WEIR_TRY(const MoveParts parts, parts_of_move(next.plan, settings_.identity));
  if (parts_.state == nullptr) return Error{Code::kInvalid, "this worker cannot move state"};
  const SteadyTime start = parts_.clock.now();
  std::int64_t bytes = 0;
  if (!offer_) saving_ = Saving{};  // what it did before is of another life
  if (offer_ && offer_->layers() == generation.layers) {
    generation.stage = offer_->take_stage();
  } else {
    WEIR_TRY(generation.stage, parts_.make_stage(generation.layers.first, generation.layers.last));
    for (const schedule::LayerRange kept : parts.kept) {
      WEIR_TRY([[maybe_unused]] const Unit copied,
               copy_layers(*offer_->stage(), *generation.stage, kept));
    }
  }
  if (!parts.fetched.empty()) {
    std::stop_source source = switch_point_.begin_connecting();
    const std::stop_callback on_stop(stop, [&source] { source.request_stop(); });
    if (leaving()) source.request_stop();
    WEIR_TRY(bytes, parts_.state->fetch(key_of_move(next, at_step),
                                        requests_for(next.plan, parts, *generation.stage),
                                        start + settings_.progress_deadline, source.get_token()));
  }
  step_ = at_step;
  log_info(kRoom, "state moved",
           {{"revision", next.plan.revision},
            {"step", step_},
            {"stage", generation.place.stage},
            {"layers", text_of(generation.layers)},
            {"moved_bytes", bytes},
            {"seconds", std::chrono::duration<double>(parts_.clock.now() - start).count()}});
  if (bytes > 0 && hooks_.moved) hooks_.moved(next.plan.revision, bytes);
  return Unit{};
}

}  // namespace weir::engine
