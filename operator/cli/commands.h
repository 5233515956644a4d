// SPDX-License-Identifier: Apache-2.0
// Runs a command: asks the API server, and prints what views.h makes of the answers. All that is
// printed becomes printable here.
#pragma once

#include <functional>
#include <ostream>
#include <stop_token>

#include "operator/cli/options.h"
#include "operator/kube/client.h"
#include "worker/base/clock.h"

namespace weir::cli {

struct Session {
  kube::Client& client;
  SystemTime now;
  std::ostream& out;
  std::ostream& err;
  std::stop_token stop = {};
};

// options.namespace_name is set. Returns the exit code: 0, or 1 after a line on `err`.
int run_command(const Options& options, const Session& session);

}  // namespace weir::cli
