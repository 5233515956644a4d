// SPDX-License-Identifier: Apache-2.0
// Every operation of ops::Kernels at three shapes or sizes, one of them ragged, on random operands:
// what two implementations are compared on.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "worker/stage/ops/kernels.h"

namespace weir::test {

struct OpArray {
  std::vector<float> values;
  bool elements;  // numbers of the kernels' precision; else floats in every precision
};

// The arrays of a case in the memory of one implementation.
struct OpMemory {
  std::vector<void*> arrays;
  const std::int32_t* tokens = nullptr;
  float* scratch = nullptr;  // host memory; attention's
  double* result = nullptr;  // host memory; of operations that return a number

  stage::ops::Element* element(std::size_t i) const {
    return static_cast<stage::ops::Element*>(arrays[i]);
  }
  float* floats(std::size_t i) const { return static_cast<float*>(arrays[i]); }
};

struct OpCase {
  std::string name;  // of letters and digits
  std::vector<OpArray> arrays;
  std::vector<std::int32_t> tokens;
  std::size_t scratch = 0;  // floats
  std::function<void(stage::ops::Kernels&, const OpMemory&)> calls;
};

std::vector<OpCase> op_cases();
// For messages of GoogleTest.
inline void PrintTo(const OpCase& tested, std::ostream* out) {
  *out << tested.name;
}

}  // namespace weir::test
