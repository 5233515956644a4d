// SPDX-License-Identifier: Apache-2.0
// weir-operator. Exit codes: 0 = success, 1 = failure, 2 = wrong options or configuration; those of
// plan and simulate are in operator/planner/README.md "The tool".
#include <cstdio>
#include <exception>
#include <iostream>

#include "operator/app/check_command.h"
#include "operator/app/options.h"
#include "operator/app/plan_command.h"
#include "operator/app/run_state.h"
#include "operator/app/version.h"
#include "worker/base/exception_text.h"

int main(int argc, char** argv) {
  using namespace weir::operator_app;
  try {
    const Parsed parsed = parse_options(argc, argv);
    if (parsed.exit_code >= 0) return parsed.exit_code;
    switch (parsed.options.command) {
      case Command::kRun:
        return run_command(parsed.options);
      case Command::kCheck:
        return check_command(parsed.options);
      case Command::kPlan:
        return plan_command(parsed.options.plan, std::cin, std::cout, std::cerr);
      case Command::kSimulate:
        return simulate_command(parsed.options.simulate, std::cin, std::cout, std::cerr);
      case Command::kVersion:
        std::printf("weir-operator %s (%s)\n", kVersion, revision());
        return 0;
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "weir-operator: %s\n", weir::describe(e).c_str());
  }
  return 1;
}
