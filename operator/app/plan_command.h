// SPDX-License-Identifier: Apache-2.0
// `weir-operator plan` and `simulate` (operator/planner/README.md "The tool"). They read files and
// print a plan or a simulation. An error is one line on `err`; then nothing is printed on `out`.
#pragma once

#include <iosfwd>

#include "operator/app/plan_options.h"

namespace weir::operator_app {

// Both return the exit codes of operator/planner/README.md "The tool".
int plan_command(const PlanOptions& options, std::istream& in, std::ostream& out,
                 std::ostream& err);
int simulate_command(const SimulateOptions& options, std::istream& in, std::ostream& out,
                     std::ostream& err);

}  // namespace weir::operator_app
