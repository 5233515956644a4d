// SPDX-License-Identifier: Apache-2.0
// Operands of an op on the host as floats, until it is over. In float32 they are the arrays
// themselves. In bf16 they are widened copies, and results are rounded back at the end.
#pragma once

#include <vector>

#include "worker/stage/ops/bf16.h"
#include "worker/stage/ops/element.h"

namespace weir::stage::ops {

inline std::size_t product(int a, int b, int c = 1) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c);
}

class In {  // read; may be null
 public:
  In(const Element* values, std::size_t count, Precision precision) : values_(as<float>(values)) {
    if (precision == Precision::kFp32 || values == nullptr) return;
    wide_.resize(count);
    widen(count, as<Bf16>(values), wide_.data());
    values_ = wide_.data();
  }
  In(const In&) = delete;
  In& operator=(const In&) = delete;
  operator const float*() const { return values_; }

 private:
  const float* values_;
  std::vector<float> wide_;
};

class Out {  // replaced
 public:
  Out(Element* values, std::size_t count, Precision precision)
      : values_(values), wide_(precision == Precision::kBf16 ? count : 0) {}
  ~Out() { round(wide_.size(), wide_.data(), as<Bf16>(values_)); }
  Out(const Out&) = delete;
  Out& operator=(const Out&) = delete;
  operator float*() { return wide_.empty() ? as<float>(values_) : wide_.data(); }

 protected:
  Element* const values_;
  std::vector<float> wide_;
};

class InOut : public Out {  // read and replaced
 public:
  InOut(Element* values, std::size_t count, Precision precision) : Out(values, count, precision) {
    widen(wide_.size(), as<Bf16>(values), wide_.data());
  }
};

}  // namespace weir::stage::ops
