// SPDX-License-Identifier: Apache-2.0
// Schedules of others, to compare with; no plans of ours.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "worker/schedule/simulator.h"

namespace weir::schedule::test {

// PipeMorph's Algorithm 2 (arXiv 2504.19232): x_{S-1} = 1, x_i = x_{i+1} + D_i,
//   D_i = min(M-2S, max(2, ceil((f_i+b_i+2c_i) / (f_{i+1}+b_{i+1}))))
// It looks at pairs of stages only, and D is never below 2.
inline std::vector<int> pipemorph_caps(const PipelineModel& model, int micro_batches) {
  const int stages = static_cast<int>(model.stages.size());
  const auto time = [](const StageTime& stage) { return (stage.forward + stage.backward).count(); };
  std::vector<int> caps(model.stages.size(), 1);
  for (std::size_t i = model.stages.size() - 1; i-- > 0;) {
    const LinkModel& link = model.forward[i];
    const std::int64_t around = time(model.stages[i]) + 2 * (link.transfer + link.latency).count();
    const std::int64_t next = time(model.stages[i + 1]);
    int slack = std::max(2, static_cast<int>((around + next - 1) / next));
    slack = std::min(std::max(1, micro_batches - 2 * stages), slack);
    caps[i] = std::min(micro_batches, caps[i + 1] + slack);
  }
  return caps;
}

}  // namespace weir::schedule::test
