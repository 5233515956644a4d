// SPDX-License-Identifier: Apache-2.0
// libweir-worker.so: the worker in the process of a program that computes the layers.
#include <atomic>
#include <cstdio>

#include "worker/app/run.h"

int32_t weir_worker_main(int32_t argc, const char* const* argv, const weir_layers* layers) {
  constexpr int kConfiguration = 2;
  static std::atomic<bool> called{false};
  if (argc < 1 || layers == nullptr) {
    std::fputs("weir_worker_main: needs the name of the program and layers\n", stderr);
    return kConfiguration;
  }
  if (called.exchange(true)) {
    return weir::app::fail(argv[0], kConfiguration,
                           "weir_worker_main was called twice; a process is one worker");
  }
  const int code = weir::app::run_worker(argc, argv, layers);
  std::fflush(nullptr);
  return code;
}
