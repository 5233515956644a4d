// SPDX-License-Identifier: Apache-2.0
// Indices of workers. Those that the planner plans on count from 0, and 0 is the coordinator's.
// Spares have indices of their own, so that the others' do not depend on how many there are.
#pragma once

namespace weir {

inline constexpr int kFirstSpare = 8192;  // a job has at most 4096 workers

// Its worker has no stage of the first plan, and the start of a job does not wait for it. Later it
// may have the place of a lost worker.
constexpr bool is_spare(int worker_index) {
  return worker_index >= kFirstSpare;
}

}  // namespace weir
