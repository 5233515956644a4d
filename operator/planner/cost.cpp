// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/cost.h"

#include <algorithm>

namespace weir::planner {

double period(const Pipeline& pipeline, int k) {
  const std::vector<StageCost>& stages = pipeline.stages;
  double result = 0;
  for (const StageCost& stage : stages) result = std::max(result, stage.forward + stage.backward);
  for (const double c : pipeline.send_forward) result = std::max(result, c);
  for (const double c : pipeline.send_backward) result = std::max(result, c);
  for (std::size_t s = 0; s + 1 < stages.size(); ++s) {
    double loop = stages[s].forward + stages[s].backward;
    const double mb = std::max(stages[s].backward, pipeline.send_backward[s]);
    for (std::size_t q = s + 1; q < stages.size(); ++q) {
      loop += pipeline.send_forward[q - 1] + pipeline.send_backward[q - 1] + stages[q].forward +
              stages[q].backward;
      const double mf = std::max(stages[q].forward, pipeline.send_forward[q - 1]);
      result =
          std::max(result, (loop + (k - 1) * (mf + mb)) / (k * static_cast<double>(q - s + 1)));
    }
  }
  return result;
}

double step_seconds(const Pipeline& pipeline, const Shape& shape) {
  double once = 0;
  for (const StageCost& stage : pipeline.stages) once += stage.forward + stage.backward;
  for (const double c : pipeline.send_forward) once += c;
  for (const double c : pipeline.send_backward) once += c;
  return once + (shape.micro_batches - 1) * period(pipeline, shape.k);
}

double update_tail(const Pipeline& pipeline) {
  double tail = 0, behind = 0;
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    tail = std::max(tail, pipeline.stages[s].update - behind);
    behind += pipeline.stages[s].backward;
    if (s < pipeline.send_backward.size()) behind += pipeline.send_backward[s];
  }
  return tail;
}

}  // namespace weir::planner
