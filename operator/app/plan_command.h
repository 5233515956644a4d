// SPDX-License-Identifier: Apache-2.0
// `weir-operator plan` and `weir-operator simulate`: files in, plan or simulation out (planner.md
// 9). Errors are one line on `err`, without partial output on `out`.
#pragma once

#include <iosfwd>

#include "operator/app/plan_options.h"

namespace weir::operator_app {

// The exit codes of planner.md 9.3.
int plan_command(const PlanOptions& options, std::istream& in, std::ostream& out,
                 std::ostream& err);
int simulate_command(const SimulateOptions& options, std::istream& in, std::ostream& out,
                     std::ostream& err);

}  // namespace weir::operator_app
