// SPDX-License-Identifier: Apache-2.0
#include "tests/multiproc/slow_replica.h"

#include <cstdio>
#include <set>

namespace weir::test {
namespace {

std::string text(double value) {
  char digits[32];
  static_cast<void>(std::snprintf(digits, sizeof digits, "%.9g", value));
  return digits;
}

// Device classes x1, x2, ...: so many times slower.
std::string profile(int stages, int times_slower, double op_seconds) {
  std::string nodes;
  for (int i = 0; i < kEmulatedLayers; ++i) {
    const std::string id = i == 0                     ? "embed"
                           : i == kEmulatedLayers - 1 ? "head"
                                                      : "hidden" + std::to_string(i - 1);
    std::string times;
    for (const int factor : std::set{1, times_slower}) {
      const double part = op_seconds * factor * stages / kEmulatedLayers;
      times += (times.empty() ? "\"x" : ", \"x") + std::to_string(factor) +
               "\": [{\"samples\": 2, \"forward\": " + text(part / 3) +
               ", \"backward\": " + text(part * 2 / 3) + "}]";
    }
    nodes += (i > 0 ? ", " : "") + std::string(R"({"id": ")") + id +
             R"(", "parameterBytes": 1, "outputBytesPerSample": 1, "times": {)" + times + "}}";
  }
  return R"({"apiVersion": "weir.dev/profile/v1", "nodes": [)" + nodes + "]}";
}

}  // namespace

SlowReplica::SlowReplica(int replicas, int stages, int times_slower, double op_seconds)
    : profile_(folder_.file("profile.json", profile(stages, times_slower, op_seconds))),
      replicas_(replicas),
      stages_(stages),
      times_slower_(times_slower) {}

std::string SlowReplica::emulation() const {
  return "--emulate-profile=" + profile_;
}

std::vector<std::string> SlowReplica::common(int steps) const {
  return {"--model=mlp", "--seq=4", "--vocab=32", emulation(), "--steps=" + std::to_string(steps)};
}

std::vector<std::vector<std::string>> SlowReplica::devices() const {
  std::vector<std::vector<std::string>> extra;
  for (int i = 0; i < replicas_ * stages_; ++i) {
    const bool slow = i / stages_ == replicas_ - 1;
    extra.push_back({"--emulate-device=x" + std::to_string(slow ? times_slower_ : 1)});
  }
  return extra;
}

}  // namespace weir::test
