// SPDX-License-Identifier: Apache-2.0
// weir-operator. Exit codes: 0 well, 1 failed, 2 wrong options or configuration.
#include <cstdio>
#include <exception>

#include "operator/app/check_command.h"
#include "operator/app/options.h"
#include "operator/app/run_state.h"
#include "operator/app/version.h"

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
      case Command::kVersion:
        std::printf("weir-operator %s (%s)\n", kVersion, revision());
        return 0;
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "weir-operator: %s\n", e.what());
  }
  return 1;
}
