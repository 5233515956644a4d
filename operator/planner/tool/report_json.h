// SPDX-License-Identifier: Apache-2.0
// weir.dev/planreport/v1 as text. Pure.
#pragma once

#include <string>

#include "operator/planner/report.h"

namespace weir::planner {

// One JSON object, fixed key order, shortest round-trip numbers, no times of day.
// `explain`: with search.details.
std::string encode_report(const PlanReport& report, bool explain = false);

}  // namespace weir::planner
