// SPDX-License-Identifier: Apache-2.0
// Workers of several replicas with emulated compute, the last replica so many times slower.
#pragma once

#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace weir::test {

constexpr int kEmulatedLayers = 8;
constexpr double kOpSeconds = 0.030;  // F and B of a stage and micro-batch; F is a third

class SlowReplica {
 public:
  // op_seconds: of all replicas but the slow one.
  SlowReplica(int replicas, int stages, int times_slower, double op_seconds = kOpSeconds);

  std::vector<std::string> common(int steps) const;       // arguments of every worker
  std::string emulation() const;                          // of these the one that emulates
  std::vector<std::vector<std::string>> devices() const;  // of each worker, besides

 private:
  TempDir folder_;
  std::string profile_;
  int replicas_, stages_, times_slower_;
};

}  // namespace weir::test
