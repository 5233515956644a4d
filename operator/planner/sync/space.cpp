// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/sync/space.h"

#include <cstdint>

#include "worker/base/check.h"

namespace weir::planner {
namespace {

void add_moves(SyncSpace& space) {
  space.moves.resize(static_cast<std::size_t>(space.options));
  for (int key = 0; key < space.keys; ++key) {
    for (int o = 0; o < space.options; ++o) {
      const int next = space.after(key, o);
      if (next >= 0) space.moves[static_cast<std::size_t>(o)].emplace_back(key, next);
    }
  }
}

}  // namespace

std::optional<SyncSpace> space_of_counts(const SyncModel& model, int most) {
  const std::vector<SyncClass>& classes = model.request().classes;
  SyncSpace space;
  std::vector<int> stride;
  std::int64_t keys = 1;
  for (const SyncClass& device : classes) {
    stride.push_back(static_cast<int>(keys));
    keys *= device.count + 1;
    if (keys > most) return std::nullopt;
  }
  space.keys = static_cast<int>(keys);
  space.options = static_cast<int>(model.options().size());
  space.next.reserve(static_cast<std::size_t>(space.keys * space.options));
  for (int key = 0; key < space.keys; ++key) {
    for (const SyncOption& option : model.options()) {
      const auto c = static_cast<std::size_t>(option.device_class);
      const int used = key / stride[c] % (classes[c].count + 1);
      const bool enough = used + option.ranks <= classes[c].count;
      space.next.push_back(enough ? key + option.ranks * stride[c] : -1);
    }
    space.full.push_back(key + 1 == space.keys ? 1 : 0);
  }
  add_moves(space);
  return space;
}

SyncSpace space_of_sequence(const SyncModel& model, const std::vector<int>& behind) {
  SyncSpace space;
  space.keys = static_cast<int>(behind.size()) + 1;
  space.options = static_cast<int>(model.options().size());
  space.whole = false;
  for (int key = 0; key < space.keys; ++key) {
    for (const SyncOption& option : model.options()) {
      const bool mine = key + 1 < space.keys && option.ranks == 1 &&
                        option.device_class == behind[static_cast<std::size_t>(key)];
      space.next.push_back(mine ? key + 1 : -1);
    }
    space.full.push_back(key + 1 == space.keys ? 1 : 0);
  }
  add_moves(space);
  return space;
}

}  // namespace weir::planner
