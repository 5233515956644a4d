// SPDX-License-Identifier: Apache-2.0
// weir-worker. The main thread handles signals; the engine's thread does everything else
// (steps.cpp).
#include <cstdio>
#include <unistd.h>

#include "worker/app/run.h"

int main(int argc, char** argv) {
  const int code = weir::app::run_worker(argc, argv, nullptr);
  std::fflush(nullptr);
  _exit(code);
}
