// SPDX-License-Identifier: Apache-2.0
#include "operator/adaptation/retune/memory_alarm.h"

#include <algorithm>

namespace weir::retune {
namespace {

constexpr double kLeastFreeMemory = 0.02;  // operator/adaptation/retune/README.md "Decision"
constexpr std::int64_t kGuardSteps = 3;    // for a switch and a whole step with the new caps

}  // namespace

bool memory_is_short(const std::vector<double>& free_memory) {
  return std::ranges::any_of(free_memory,
                             [](double part) { return part >= 0 && part < kLeastFreeMemory; });
}

std::optional<Costed> memory_alarm(const Input& input, State& state) {
  schedule::Schedule schedule = input.current;
  const std::size_t stages = schedule.caps.size();
  if (input.free_memory.size() != stages) return std::nullopt;
  // Until the caps of the last alarm are in force, free memory says nothing about them.
  if (input.step < state.guarded_step + kGuardSteps) return std::nullopt;
  state.guarded_samples.resize(stages, input.micro_batches * schedule.micro_batch_size);
  bool lowered = false;
  for (std::size_t s = 0; s < stages; ++s) {
    int& cap = schedule.caps[s];
    // With split backwards those that the stage holds count.
    int& most = schedule.split ? schedule.split->held[s] : cap;
    const bool alarm = input.free_memory[s] >= 0 && input.free_memory[s] < kLeastFreeMemory;
    if (alarm && most > 1) {
      --most;
      state.guarded_samples[s] =
          std::min(state.guarded_samples[s], most * schedule.micro_batch_size);
      lowered = true;
    }
    cap = std::min(cap, most);
    if (s > 0) cap = std::min(cap, schedule.caps[s - 1]);
  }
  if (!lowered) return std::nullopt;
  state.guarded_step = input.step;
  schedule.k = schedule::k_of_caps(schedule.caps);
  schedule.dispatch = schedule::dispatch_in_force(schedule, input.settings.dispatch);
  return Costed{.schedule = schedule,
                .seconds = 0,
                .text = costing::describe(schedule),
                .micro_batches = input.micro_batches};
}

}  // namespace weir::retune
