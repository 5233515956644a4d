// SPDX-License-Identifier: Apache-2.0
// Which devices stages may take, from the last stage to the first: states ("keys") of what is used,
// and what each option leads to. Inside the room only.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "operator/planner/sync/model.h"

namespace weir::planner {

struct SyncSpace {
  int keys = 1;  // 0: nothing is used
  int options = 0;
  bool whole = true;      // every choice of devices is in it, so searches over it are exact
  std::vector<int> next;  // [key][option] -> key, -1: not possible
  std::vector<std::vector<std::pair<int, int>>> moves;  // by option: (key, next key)
  std::vector<char> full;                               // by key: no device is idle

  int after(int key, int option) const {
    return next[static_cast<std::size_t>(key) * static_cast<std::size_t>(options) +
                static_cast<std::size_t>(option)];
  }
};

// Counts of used devices by class; nothing if there are more states than `most`.
std::optional<SyncSpace> space_of_counts(const SyncModel& model, int most);
// The class of each stage is fixed from the end: behind[0] is that of the last stage. One rank
// each.
SyncSpace space_of_sequence(const SyncModel& model, const std::vector<int>& behind);

}  // namespace weir::planner
