// SPDX-License-Identifier: Apache-2.0
// A profile whose layers are all alike.
#pragma once

#include <string>

namespace weir::reconcile::test {

// 30 ms of four samples each; bytes of a layer's parameters, and of its output per sample.
inline std::string equal_layers(int count, int parameter_bytes, int output_bytes) {
  std::string nodes;
  for (int i = 0; i < count; ++i) {
    nodes += std::string(i == 0 ? "" : ",") + R"({"id":"l)" + std::to_string(i) +
             R"(","parameterBytes":)" + std::to_string(parameter_bytes) +
             R"(,"outputBytesPerSample":)" + std::to_string(output_bytes) +
             R"(,"times":{"A":[{"samples":4,"forward":0.01,"backward":0.02}]}})";
  }
  return R"({"apiVersion":"weir.dev/profile/v1","model":"m","digest":"sha256:0","nodes":[)" +
         nodes + "]}";
}

}  // namespace weir::reconcile::test
