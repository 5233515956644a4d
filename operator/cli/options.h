// SPDX-License-Identifier: Apache-2.0
// The command line of kubectl-weir as a struct.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace weir::cli {

enum class Command : unsigned char {
  kTop,
  kWhy,
  kPlan,
  kLogs,
  kCheckpoints,
  kSuspend,
  kResume,
  kScale,
  kTrace,
  kVersion
};

struct Options {
  Command command = Command::kTop;
  std::string kubeconfig, context;
  std::string namespace_name;  // "" = that of the context
  bool all_namespaces = false;
  std::string job;  // "" = all; only of top
  int rank = 0;
  bool follow = false;
  std::optional<int> tail;  // lines
  int replicas = 1;
  int steps = 3;                      // of trace
  std::optional<int> replica;         // of trace: only its ranks
  bool flight = false;                // of trace: the newest dump, instead of the newest steps
  std::vector<std::string> from;      // of trace: files that workers wrote, instead of a job
  std::string output = "trace.json";  // of trace
};

struct Parsed {
  Options options;
  int exit_code = -1;  // -1 = run the command; 0 = help was printed; 2 = an error was printed
};
Parsed parse_options(int argc, const char* const* argv);

const char* name(Command command);

}  // namespace weir::cli
