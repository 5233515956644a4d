// SPDX-License-Identifier: Apache-2.0
// Turns the decision into what is told: the planner's part of the plan and the report (report.h).
// Inside the room only.
#pragma once

#include "operator/planner/decide.h"
#include "operator/planner/engines.h"

namespace weir::planner {

struct Selection {
  const Setting& setting;
  const Layout& chosen;
  const Scored& scored;
  const EngineAnswer& answer;
  double lower_bound = 0;  // over all micro-batch sizes
  bool stopped = false;
};
PlanReport describe(const Selection& from);

// dT/d(share) of every boundary, and the share below which another k or cap rule of the same cut is
// better by request.min_gain.
std::vector<LinkSensitivity> sensitivity_of(const Setting& setting, const Layout& chosen,
                                            const std::vector<Layout>& others);

// The part that sets the period: "stage 0", "link 0-1" or "loop 0-2".
std::string period_cause(const Pipeline& pipeline, int k);

}  // namespace weir::planner
