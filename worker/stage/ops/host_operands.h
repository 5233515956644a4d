// SPDX-License-Identifier: Apache-2.0
// Operands of the host's kernels as floats, for the duration of one call. In float32 they are the
// arrays themselves. In bf16 they are widened copies, and results are rounded back when the call is
// over.
#pragma once

#include <cstddef>
#include <vector>

#include "worker/stage/ops/bf16.h"
#include "worker/stage/ops/kernels.h"

namespace weir::stage::ops {

template <class T>
class In;  // read; may be null
template <class T>
class Out;  // replaced
template <class T>
class InOut;  // read and replaced

template <>
class In<float> {
 public:
  In(const Element* values, std::size_t /*count*/) : values_(as<float>(values)) {}
  operator const float*() const { return values_; }

 private:
  const float* values_;
};
template <>
class Out<float> {
 public:
  Out(Element* values, std::size_t /*count*/) : values_(as<float>(values)) {}
  operator float*() const { return values_; }

 private:
  float* values_;
};
template <>
class InOut<float> : public Out<float> {
  using Out::Out;
};

template <>
class In<Bf16> {
 public:
  In(const Element* values, std::size_t count) {
    if (values == nullptr) return;
    wide_.resize(count);
    widen(count, as<Bf16>(values), wide_.data());
  }
  operator const float*() const { return wide_.empty() ? nullptr : wide_.data(); }

 private:
  std::vector<float> wide_;
};
template <>
class Out<Bf16> {
 public:
  Out(Element* values, std::size_t count) : values_(as<Bf16>(values)), wide_(count) {}
  ~Out() { round(wide_.size(), wide_.data(), values_); }
  Out(const Out&) = delete;
  Out& operator=(const Out&) = delete;
  operator float*() { return wide_.data(); }

 protected:
  Bf16* values_;
  std::vector<float> wide_;
};
template <>
class InOut<Bf16> : public Out<Bf16> {
 public:
  InOut(Element* values, std::size_t count) : Out(values, count) {
    widen(count, values_, wide_.data());
  }
};

}  // namespace weir::stage::ops
