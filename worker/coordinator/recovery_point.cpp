// SPDX-License-Identifier: Apache-2.0
#include "worker/coordinator/recovery_point.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

namespace weir::coordinator {
namespace {

using protocol::Held;

bool belongs(const Held& held, std::int64_t history, int replica) {
  return held.replica == replica && (held.history == history || held.pending == history);
}

// Marks the layers, and returns whether one of them was not marked before.
bool mark(const Held& held, std::vector<bool>& layers) {
  bool fresh = false;
  const int last = std::min(held.last, static_cast<int>(layers.size()) - 1);
  for (int layer = std::max(0, held.first); layer <= last; ++layer) {
    fresh = fresh || !layers[static_cast<std::size_t>(layer)];
    layers[static_cast<std::size_t>(layer)] = true;
  }
  return fresh;
}

// Where to look for the layers of a step. snapshots_first: of ranks with both.
struct Search {
  bool copies = false, snapshots_first = false;
};

// The holders of `step`; nothing if they lack a layer.
std::optional<RecoveryPoint> point_at(std::span<const MemberInventory> members, int layers,
                                      std::int64_t history, int replica, std::int64_t step,
                                      Search search) {
  RecoveryPoint point{.step = step};
  for (const auto& [member, inventory] : members) {
    const bool stands = std::ranges::any_of(inventory.held, [&](const Held& held) {
      return belongs(held, history, replica) && held.step == step && !held.snapshot;
    });
    if (stands && inventory.verdict) point.verdict = inventory.verdict;
  }
  std::vector<bool> held_layers(static_cast<std::size_t>(layers));
  for (const auto& [member, inventory] : members) {
    const auto counts = [&](const Held& held) {
      const bool follows = point.verdict && held.summed && held.step + 1 == step;
      return !held.copy && belongs(held, history, replica) && (held.step == step || follows);
    };
    const bool prefers = std::ranges::any_of(inventory.held, [&](const Held& held) {
      return counts(held) && held.snapshot == search.snapshots_first;
    });
    for (const Held& held : inventory.held) {
      if (!counts(held) || (prefers && held.snapshot != search.snapshots_first)) continue;
      point.holders.push_back({member, {held.first, held.last}, held.snapshot});
      mark(held, held_layers);
    }
  }
  for (const auto& [member, inventory] : members) {
    for (const Held& held : inventory.held) {
      const bool counts =
          search.copies && held.copy && belongs(held, history, replica) && held.step == step;
      if (!counts || !mark(held, held_layers)) continue;
      point.holders.push_back({member, {held.first, held.last}, held.snapshot, true});
    }
  }
  if (std::ranges::find(held_layers, false) != held_layers.end()) return std::nullopt;
  return point;
}

}  // namespace

std::optional<RecoveryPoint> recovery_point(std::span<const MemberInventory> members, int layers) {
  std::int64_t history = 0;
  for (const MemberInventory& one : members) history = std::max(history, one.inventory.history);

  // From the highest step down; of equal steps the lowest replica.
  std::set<std::pair<std::int64_t, int>, std::greater<>> places;
  for (const MemberInventory& one : members) {
    for (const Held& held : one.inventory.held) {
      if (belongs(held, history, held.replica)) places.emplace(held.step, -held.replica);
    }
  }
  for (const auto& [step, replica] : places) {
    for (const bool copies : {false, true}) {
      for (const bool snapshots_first : {false, true}) {
        auto point = point_at(members, layers, history, -replica, step, {copies, snapshots_first});
        if (point) return point;
      }
    }
  }
  return std::nullopt;
}

std::string why_no_point(std::span<const MemberInventory> members, int layers) {
  std::vector<bool> held_layers(static_cast<std::size_t>(layers));
  for (const auto& [member, inventory] : members) {
    for (const Held& held : inventory.held) mark(held, held_layers);
  }
  const auto lacks = std::ranges::find(held_layers, false);
  if (lacks == held_layers.end()) return "no step has a holder of every layer";
  const auto first = lacks - held_layers.begin();
  const auto last = std::find(lacks, held_layers.end(), true) - held_layers.begin() - 1;
  return "no worker holds " +
         (first == last ? "layer " + std::to_string(first)
                        : "layers " + std::to_string(first) + ".." + std::to_string(last));
}

}  // namespace weir::coordinator
