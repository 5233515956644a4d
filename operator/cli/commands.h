// SPDX-License-Identifier: Apache-2.0
// Runs a command: asks the API server, and prints what views.h makes of the answers. All that is
// printed becomes printable here.
#pragma once

#include <chrono>
#include <functional>
#include <ostream>
#include <stop_token>
#include <string>

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
  // For `trace`: names this request among all of the job, [a-z0-9-]{1,40}; waits before it looks
  // again.
  std::string request_id = {};
  std::function<void(std::chrono::seconds)> sleep = {};
};

// options.namespace_name is set. Returns the exit code: 0, or 1 after a line on `err`.
int run_command(const Options& options, const Session& session);

}  // namespace weir::cli
