// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/cost.h"

namespace weir::planner {

double step_seconds(const Pipeline& pipeline, const Shape& shape) {
  double once = 0;
  for (const StageCost& stage : pipeline.stages) once += stage.forward + stage.backward;
  for (const double c : pipeline.send_forward) once += c;
  for (const double c : pipeline.send_backward) once += c;
  return once + (shape.micro_batches - 1) * period(pipeline, shape.k);
}

}  // namespace weir::planner
