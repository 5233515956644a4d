// SPDX-License-Identifier: Apache-2.0
// A profile whose layers are all alike.
#pragma once

#include <string>

namespace weir::reconcile::test {

// 30 ms of four samples each; bytes of a layer's parameters, of its output per sample, and of its
// frozen parameters.
inline std::string equal_layers(int count, int parameter_bytes, int output_bytes,
                                int frozen_bytes = 0) {
  constexpr int kStateFactor = 6;
  std::string nodes;
  for (int i = 0; i < count; ++i) {
    nodes +=
        std::string(i == 0 ? "" : ",") + R"({"id":"l)" + std::to_string(i) +
        R"(","parameterBytes":)" + std::to_string(parameter_bytes) +
        (frozen_bytes == 0 ? ""
                           : R"(,"staticBytes":)" +
                                 std::to_string(kStateFactor * parameter_bytes + frozen_bytes)) +
        R"(,"outputBytesPerSample":)" + std::to_string(output_bytes) +
        R"(,"times":{"A":[{"samples":4,"forward":0.01,"backward":0.02}]}})";
  }
  return R"({"apiVersion":"weir.dev/profile/v1","model":"m","digest":"sha256:0","nodes":[)" +
         nodes + "]}";
}

}  // namespace weir::reconcile::test
