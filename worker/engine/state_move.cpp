// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/state_move.h"

#include <algorithm>
#include <string>
#include <utility>

#include "worker/base/log.h"
#include "worker/engine/engine.h"
#include "worker/engine/generation.h"

namespace weir::engine {
namespace {

bool holds(const schedule::LayerHolder& holder, int layer) {
  return holder.layers.first <= layer && layer <= holder.layers.last;
}

bool is_of(const schedule::LayerHolder& holder, const Identity& identity) {
  const bool both_uids = !holder.pod_uid.empty() && !identity.pod_uid.empty();
  return both_uids ? holder.pod_uid == identity.pod_uid : holder.pod == identity.pod;
}

std::string text_of(schedule::LayerRange layers) {
  return std::to_string(layers.first) + ".." + std::to_string(layers.last);
}

// Memory for the parts of the move that come from other ranks.
Result<std::vector<HostState>> room_for(const MoveParts& parts, stage::Stage& stage) {
  std::vector<HostState> room;
  for (const MovePart& part : parts.fetched) {
    WEIR_TRY(HostState state, HostState::to_fill(stage, part.layers));
    room.push_back(std::move(state));
  }
  return room;
}

std::vector<transport::StateRequest> requests_for(const schedule::Plan& plan,
                                                  const MoveParts& parts,
                                                  const std::vector<HostState>& room) {
  std::vector<transport::StateRequest> requests;
  for (std::size_t i = 0; i < parts.fetched.size(); ++i) {
    const schedule::LayerHolder& holder = plan.holders[parts.fetched[i].holder];
    requests.push_back({.from = {.stage = holder.stage,
                                 .ip = holder.ip,
                                 .data_port = holder.data_port,
                                 .node = holder.node},
                        .layers = room[i].memory()});
  }
  return requests;
}

std::vector<stage::Parameter> parameters_of(stage::Stage& stage, schedule::LayerRange layers) {
  std::vector<stage::Parameter> all = stage.parameters();
  std::erase_if(all, [&](const stage::Parameter& one) {
    return one.layer < layers.first || one.layer > layers.last;
  });
  return all;
}

}  // namespace

const schedule::LayerHolder* holder_of(const schedule::Plan& plan, const Identity& identity) {
  for (const schedule::LayerHolder& holder : plan.holders) {
    if (!holder.copy && is_of(holder, identity)) return &holder;
  }
  return nullptr;
}

std::vector<schedule::LayerRange> copies_at(const schedule::Plan& plan, const Identity& identity) {
  std::vector<schedule::LayerRange> copies;
  for (const schedule::LayerHolder& holder : plan.holders) {
    if (holder.copy && is_of(holder, identity)) copies.push_back(holder.layers);
  }
  return copies;
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
      return invalid("state: Move, but layer " + std::to_string(layer) + " is held by no rank");
    }
    const std::size_t from = holders[static_cast<std::size_t>(place->replica) % holders.size()];
    const bool goes_on = !parts.fetched.empty() && parts.fetched.back().holder == from &&
                         parts.fetched.back().layers.last == layer - 1;
    if (goes_on) ++parts.fetched.back().layers.last;
    if (!goes_on) parts.fetched.push_back({from, {layer, layer}});
  }
  return parts;
}

Result<HostState> HostState::open(stage::Stage& stage, schedule::LayerRange layers, Open open) {
  HostState state;
  state.layers_ = layers;
  for (const stage::Parameter& parameter : parameters_of(stage, layers)) {
    for (const std::span<float> values : parameter.state()) {
      if (values.empty()) continue;
      WEIR_TRY(auto view, open(stage.device(), values));
      state.parts_.push_back({parameter.layer, std::move(view)});
    }
  }
  return state;
}

Result<HostState> HostState::of(stage::Stage& stage, schedule::LayerRange layers) {
  return open(stage, layers, device::HostView<float>::of);
}

Result<HostState> HostState::to_fill(stage::Stage& stage, schedule::LayerRange layers) {
  return open(stage, layers, device::HostView<float>::to_fill);
}

std::vector<transport::LayerMemory> HostState::memory() const {
  std::vector<transport::LayerMemory> memory;
  for (int layer = layers_.first; layer <= layers_.last; ++layer) {
    memory.push_back({.layer = layer, .parts = {}});
  }
  for (const Part& part : parts_) {
    memory[static_cast<std::size_t>(part.layer - layers_.first)].parts.push_back(
        std::as_writable_bytes(part.view.values()));
  }
  return memory;
}

Status HostState::write_back() {
  for (Part& part : parts_) WEIR_OK(part.view.write_back());
  return Unit{};
}

Status copy_layers(stage::Stage& from, stage::Stage& to, schedule::LayerRange layers) {
  const auto source = parameters_of(from, layers), target = parameters_of(to, layers);
  const auto alike = [](const stage::Parameter& a, const stage::Parameter& b) {
    return a.layer == b.layer && a.value.size() == b.value.size() && a.frozen() == b.frozen();
  };
  const auto [other, same] = std::ranges::mismatch(source, target, alike);
  if (other != source.end() || same != target.end()) {
    const int layer = other != source.end() ? other->layer : same->layer;
    return invalid("layer " + std::to_string(layer) + " has other parameters in the new stage");
  }
  for (std::size_t i = 0; i < source.size(); ++i) {
    const auto in = source[i].state(), out = target[i].state();
    for (std::size_t p = 0; p < in.size(); ++p) {
      if (in[p].empty()) continue;
      WEIR_OK(from.device().copy(out[p].data(), in[p].data(), in[p].size_bytes()));
    }
  }
  return Unit{};
}

OfferedState::OfferedState(transport::StateExchange& exchange, const transport::StateKey& key,
                           std::optional<HostState> state, std::vector<StoredLayers> copies)
    : exchange_(exchange), state_(std::move(state)), copies_(std::move(copies)) {
  std::vector<transport::LayerMemory> memory;
  if (state_) memory = state_->memory();
  for (const StoredLayers& copy : copies_) {
    memory.insert(memory.end(), copy.memory.begin(), copy.memory.end());
  }
  exchange_.offer(key, std::move(memory));
}

transport::StateKey Engine::key_of_move(const Prepared& next, std::int64_t at_step) const {
  return {.job_uid = options_.job_uid,
          .job_key = options_.job_key,
          .revision = next.plan.revision,
          .incarnation = static_cast<std::uint16_t>(next.incarnation),
          .step = at_step};
}

// The rank must hold the layers that the plan says it holds, at that step: other ranks fetch them.
Status Engine::offer_state(const Prepared& next, std::int64_t at_step) {
  const schedule::LayerHolder* const own = holder_of(next.plan, options_.identity);
  const auto copies = copies_at(next.plan, options_.identity);
  if (own == nullptr && copies.empty()) return Unit{};
  if (parts_.state == nullptr) return invalid("this worker cannot move state");
  const bool have = own == nullptr || holdings_.holds(own->layers);
  if (own != nullptr && (!have || step_ != at_step)) {
    return Error{Code::kConflict, "state Move: wanted is step " + std::to_string(at_step) +
                                      " of layers " + text_of(own->layers) +
                                      ", this rank stands at step " + std::to_string(step_) +
                                      (have ? "" : " of other layers")};
  }
  std::optional<HostState> state;
  if (own != nullptr) {
    WEIR_TRY(state, HostState::of(*holdings_.held(), own->layers));
  }
  std::vector<StoredLayers> stored;
  for (const schedule::LayerRange layers : copies) {
    if (parts_.snapshots == nullptr) return invalid("this worker keeps no copies");
    WEIR_TRY(StoredLayers one, parts_.snapshots->copied(layers, at_step));
    stored.push_back(std::move(one));
  }
  offer_ = std::make_unique<OfferedState>(*parts_.state, key_of_move(next, at_step),
                                          std::move(state), std::move(stored));
  return Unit{};
}

// Called while the offer is open. A stage with the same layers is kept; otherwise a new stage is
// filled from the old one and from other ranks.
Status Engine::move_stage(Generation& generation, const Prepared& next, std::int64_t at_step,
                          const std::stop_token& stop) {
  WEIR_TRY(const MoveParts parts, parts_of_move(next.plan, options_.identity));
  if (parts_.state == nullptr) return invalid("this worker cannot move state");
  const SteadyTime start = parts_.clock.now();
  std::int64_t bytes = 0;
  const bool own = holder_of(next.plan, options_.identity) != nullptr;
  if (!own) saving_ = Saving{};        // saves ordered before belong to a stage that is gone
  std::unique_ptr<stage::Stage> made;  // null: the rank goes on with the layers that it holds
  if (own && holdings_.holds(generation.layers)) {
    generation.stage = holdings_.held();
  } else {
    WEIR_TRY(made, parts_.make_stage(generation.layers.first, generation.layers.last,
                                     stage::Initial::kFromElsewhere));
    generation.stage = made.get();
    for (const schedule::LayerRange kept : parts.kept) {
      WEIR_OK(copy_layers(*holdings_.held(), *made, kept));
    }
  }
  if (!parts.fetched.empty()) {
    std::stop_source source = mailbox_.begin_connecting();
    const std::stop_callback on_stop(stop, [&source] { source.request_stop(); });
    if (quits()) source.request_stop();
    WEIR_TRY(std::vector<HostState> room, room_for(parts, *generation.stage));
    WEIR_TRY(bytes,
             parts_.state->fetch(key_of_move(next, at_step), requests_for(next.plan, parts, room),
                                 start + options_.progress_deadline, source.get_token()));
    for (HostState& state : room) WEIR_OK(state.write_back());
  }
  step_ = at_step;
  if (made && own) {
    holdings_.add({std::move(made), generation.layers});
  } else if (made) {  // what it held before, if anything, is of another step
    generation_.reset();
    replace_holding({std::move(made), generation.layers});
  }
  log_info(kRoom, "state moved",
           {{"revision", next.plan.revision},
            {"step", step_},
            {"stage", generation.place.stage},
            {"layers", text_of(generation.layers)},
            {"moved_bytes", bytes},
            {"seconds", std::chrono::duration<double>(parts_.clock.now() - start).count()}});
  if (bytes > 0) mailbox_.tell(protocol::Moved{.revision = next.plan.revision, .bytes = bytes});
  return Unit{};
}

}  // namespace weir::engine
