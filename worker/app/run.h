// SPDX-License-Identifier: Apache-2.0
// The program behind weir-worker and libweir-worker.so.
#pragma once

#include <string>

#include "worker/stage/foreign/weir_layers.h"

namespace weir::app {

// Parses the options, trains, and returns the exit code. Once in a process: what it has made lives
// until the process ends, because threads may still wait for a disk or a name.
// layers: null for weir-worker, whose engine has a thread of its own; else those of a host program.
// The engine then runs on the calling thread, and SIGTERM and SIGINT have handlers until the end.
int run_worker(int argc, const char* const* argv, const weir_layers* layers);

// Prints the line on standard error and leaves it for Kubernetes; returns the code.
int fail(const char* program, int code, const std::string& why);

}  // namespace weir::app
